// From a run to the kernels of rows.cuh and aligned_rows.cuh: segments of consecutive elements that
// a few lanes, a warp, a block or a cluster hold in registers.
#pragma once

#include <algorithm>
#include <bit>
#include <limits>

#include "ops/affine/aligned_rows.cuh"
#include "ops/affine/elements_launch.cuh"
#include "ops/affine/rows.cuh"

namespace planq::affine {

inline constexpr int64_t kBlockVectors = kRowThreads * 8;
inline constexpr int kMaxCluster = 8;
// From here on, few segments leave most of a GPU idle unless each has several multiprocessors.
inline constexpr int64_t kSpreadVectors = 1536;

template <class In>
bool spreads(const Outline& o, std::int32_t multiprocessors, std::int32_t arch) {
  return arch >= 90 && vectors_of<In>(o.elements) >= kSpreadVectors &&
         o.segments * kMaxCluster <= multiprocessors;
}

inline cuda::Divider divider(int64_t d) { return cuda::Divider(static_cast<std::uint32_t>(d)); }

template <class In>
SegmentArgs<In> segment_args(const Launch<In>& launch, const Geometry& g) {
  auto args = launch.template args<SegmentArgs<In>>();
  args.segments = cuda::Lines(g.starts);
  args.count = static_cast<std::uint32_t>(g.count);
  args.length = args.tail = g.length;
  if (g.tail.pieces > 1) {
    args.groups = divider(g.tail.pieces);
    args.tail = g.tail.size;
  }
  return args;
}

// Whether quantize_ragged_rows takes the segments: equal, and a fixed stride apart.
// quantize_tight_* want them aligned besides.
template <class In>
bool ragged(const Launch<In>& launch, const Geometry& g) {
  return g.starts.rank <= 1 && g.tail.pieces == 1 && g.length > 0 &&
         has_negative_codes(launch.recipe());
}

// What tight_parameters() needs of a recipe.
template <class Args>
void set_steps(Args& args) {
  using C = decltype(args.steps);
  args.exact = stores_exactly(args.recipe);
  // Bounds so close to zero that a division by them might lose bits leave no segment ordinary.
  args.steps = args.recipe.mode == Mode::Symmetric ? args.recipe.q_max : args.recipe.steps;
  args.inverse_steps =
      args.steps >= C(0x1p-30) ? C{1} / args.steps : std::numeric_limits<C>::quiet_NaN();
}

template <class In>
TightArgs<In> tight_args(const Launch<In>& launch, const Geometry& g) {
  auto args = launch.template args<TightArgs<In>>();
  if (g.starts.rank == 1) {
    const auto& stride = g.starts.axes[0].stride;
    args.input_stride = stride[kInput];
    args.output_stride = stride[kOutput];
    args.scale_stride = stride[kScale];
    args.zero_point_stride = stride[kZeroPoint];
  }
  args.count = static_cast<std::uint32_t>(g.count);
  args.vectors = static_cast<std::uint32_t>(g.length / kPerVector<In>);
  args.plain = stores_plainly(args.recipe);
  args.clamps = needs_clamp(args.recipe);
  set_steps(args);
  return args;
}

template <class In>
using TightKernel = void (*)(TightArgs<In>);

// What chooses among the instances of a tight kernel.
struct TightShape {
  Recipe recipe;
  int vectors;  // of a thread; sets of a warp
  bool cluster = false;
};

// Kernels for unusual recipes come in one shape: so many sets of a warp, or vectors of a thread, no
// clusters, and aligned segments only.
inline constexpr int kAnySets = 4, kAnyVectors = 8;

// The most sets of a warp for usual recipes. Four leave room for more warps, which is faster;
// nibbles of tensors with more than so many vectors were 2 to 6 % faster with eight on an H200.
template <Codes kCodes>
inline constexpr int kMostSets = kCodes == Codes::Nibble ? 8 : 4;
inline constexpr int64_t kMostVectorsOfFourSets = 4 << 20;

template <class In, Codes kCodes, bool kAsymmetric>
TightKernel<In> tight_lane_kernel(TightShape shape) {
  constexpr Recipe kUsual = Recipe::Usual;
  const int sets = shape.vectors;
  if (shape.recipe == kUsual) {
    if constexpr (kMostSets<kCodes> == 8)
      if (sets == 8) return quantize_tight_lanes<In, kCodes, kUsual, 8, kAsymmetric>;
    return sets == 4   ? quantize_tight_lanes<In, kCodes, kUsual, 4, kAsymmetric>
           : sets == 2 ? quantize_tight_lanes<In, kCodes, kUsual, 2, kAsymmetric>
                       : quantize_tight_lanes<In, kCodes, kUsual, 1, kAsymmetric>;
  }
  return quantize_tight_lanes<In, kCodes, Recipe::Any, kAnySets, kAsymmetric>;
}
template <class In, Codes kCodes, bool kAsymmetric>
TightKernel<In> shifted_lane_kernel() {
  return quantize_tight_lanes<In, kCodes, Recipe::Usual, kShiftedSets, kAsymmetric, true>;
}
template <class In, Codes kCodes, bool kAsymmetric>
TightKernel<In> tight_row_kernel(TightShape shape) {
  constexpr Recipe kUsual = Recipe::Usual;
  const int vectors = shape.vectors;
  if constexpr (kIsWide<In>) {
    if (shape.cluster)
      return vectors <= 4 ? quantize_tight_rows<In, kCodes, kUsual, 4, kAsymmetric, true>
                          : quantize_tight_rows<In, kCodes, kUsual, 8, kAsymmetric, true>;
    return vectors <= 2   ? quantize_tight_rows<In, kCodes, kUsual, 2, kAsymmetric, false>
           : vectors == 4 ? quantize_tight_rows<In, kCodes, kUsual, 4, kAsymmetric, false>
                          : quantize_tight_rows<In, kCodes, kUsual, 8, kAsymmetric, false>;
  } else {
    if (shape.recipe == kUsual && shape.cluster)
      return vectors <= 2   ? quantize_tight_rows<In, kCodes, kUsual, 2, kAsymmetric, true>
             : vectors == 4 ? quantize_tight_rows<In, kCodes, kUsual, 4, kAsymmetric, true>
                            : quantize_tight_rows<In, kCodes, kUsual, 8, kAsymmetric, true>;
    if (shape.recipe == kUsual)
      return vectors == 1   ? quantize_tight_rows<In, kCodes, kUsual, 1, kAsymmetric, false>
             : vectors == 2 ? quantize_tight_rows<In, kCodes, kUsual, 2, kAsymmetric, false>
             : vectors == 4 ? quantize_tight_rows<In, kCodes, kUsual, 4, kAsymmetric, false>
                            : quantize_tight_rows<In, kCodes, kUsual, 8, kAsymmetric, false>;
    return quantize_tight_rows<In, kCodes, Recipe::Any, kAnyVectors, kAsymmetric, false>;
  }
}
template <class In, Codes kCodes, bool kAsymmetric>
TightKernel<In> ragged_row_kernel(int vectors) {
  constexpr Recipe kUsual = Recipe::Usual;
  return vectors <= 2   ? quantize_ragged_rows<In, kCodes, kUsual, 2, kAsymmetric>
         : vectors == 4 ? quantize_ragged_rows<In, kCodes, kUsual, 4, kAsymmetric>
                        : quantize_ragged_rows<In, kCodes, kUsual, 8, kAsymmetric>;
}

// --- Lanes -------------------------------------------------------------------------------------

// Whether segments of `lanes` vectors follow one another without a gap, in input and output.
template <Codes kCodes, class In>
bool is_dense(const TightArgs<In>& args, int lanes) {
  return args.vectors == static_cast<unsigned>(lanes) &&
         args.input_stride == lanes * kPerVector<In> &&
         args.output_stride == lanes * kWordBytes<In, kCodes>;
}

template <Codes kCodes, class In>
bool launches_tight_lanes(const Launch<In>& launch, const Geometry& g, Status& status) {
  if (!ragged(launch, g) || g.length % kPerVector<In> != 0) return false;
  auto args = tight_args(launch, g);
  const auto lanes = static_cast<int>(power_of_two(args.vectors));
  if (g.starts.rank == 0) {
    args.input_stride = lanes * kPerVector<In>;
    args.output_stride = lanes * kWordBytes<In, kCodes>;
  }
  if (!is_dense<kCodes>(args, lanes)) return false;
  const bool is_aligned = aligned_segments<kCodes>(launch, g);
  const bool many = g.count * lanes > kMostVectorsOfFourSets;
  TightShape shape{recipe_kind(launch.recipe()), std::min(lanes, many ? kMostSets<kCodes> : 4)};
  if (shape.recipe == Recipe::Any) {
    // A set has no more segments than a segment has lanes.
    if (!is_aligned || lanes < kAnySets) return false;
  } else if (!is_aligned) {
    if (!kHasUnaligned<In, kCodes> || lanes < kShiftedSets || g.count * lanes < 2) return false;
  }
  args.lanes_log2 = std::countr_zero(static_cast<unsigned>(lanes));
  // Few warps: as many as there can be. Many: each with more loads under way.
  if (ceil_div(g.count * lanes, cuda::kWarp) <= launch.multiprocessors * 8) shape.vectors = 1;
  if (shape.recipe == Recipe::Any) shape.vectors = kAnySets;
  if (!is_aligned) shape.vectors = kShiftedSets;
  const int64_t per_block = shape.vectors * kLaneThreads / lanes;
  const TightKernel<In> kernel = by_mode<kCodes>(launch.recipe(), [&](auto asymmetric) {
    if constexpr (kHasUnaligned<In, kCodes>)
      if (!is_aligned) return shifted_lane_kernel<In, kCodes, asymmetric.value>();
    return tight_lane_kernel<In, kCodes, asymmetric.value>(shape);
  });
  status = launch.run(kernel, launch.grid(ceil_div(g.count, per_block), kLaneThreads), args);
  return true;
}

template <Codes kCodes, class In>
Status launch_lanes(const Launch<In>& launch) {
  const Geometry g = launch.geometry();
  if (g.count == 0) return Status::success();
  if (g.line_count != 1) return launch_lines<kCodes>(launch, g);
  if constexpr (kHasTight<In, kCodes>) {
    Status status;
    if (launches_tight_lanes<kCodes>(launch, g, status)) return status;
  }
  constexpr int kSets = 4;
  const int64_t lanes =
      std::max<int64_t>(power_of_two(g.length / kPerVector<In>), 2 * kPerVector<In>);
  const int64_t per_block = kSets * kLaneThreads / lanes;
  return launch.run(
      quantize_lanes<In, kCodes, kSets>, launch.grid(ceil_div(g.count, per_block), kLaneThreads),
      LaneArgs<In>{segment_args(launch, g), std::countr_zero(static_cast<std::uint64_t>(lanes))});
}

template <class In, Codes kCodes>
Status preload_lanes(const math::AffineRecipe<Compute<In>>& recipe) {
  PLANQ_TRY(preload_all(quantize_lanes<In, kCodes, 4>, quantize_lines<In, kCodes>));
  if constexpr (kHasTight<In, kCodes>)
    return by_mode<kCodes>(recipe, [&](auto asymmetric) {
      for (const int sets : {1, 2, 4, kMostSets<kCodes>})
        PLANQ_TRY(cuda::preload(
            tight_lane_kernel<In, kCodes, asymmetric.value>({recipe_kind(recipe), sets})));
      if constexpr (kHasUnaligned<In, kCodes>)
        PLANQ_TRY(cuda::preload(shifted_lane_kernel<In, kCodes, asymmetric.value>()));
      return Status::success();
    });
  return Status::success();
}

// --- A warp, a block or a cluster --------------------------------------------------------------

// Threads of a block and vectors of a thread.
struct BlockShape {
  int threads, vectors;
};

inline int threads_of(int64_t vectors, int per_thread) {
  return static_cast<int>(ceil_div(ceil_div(vectors, per_thread), cuda::kWarp) * cuda::kWarp);
}

inline BlockShape block_shape(int64_t vectors, bool few) {
  const auto threads = [&](int per_thread) { return threads_of(vectors, per_thread); };
  // Blocks that have a multiprocessor to themselves: little work for each thread.
  if (few && threads(1) <= kWideRowThreads) return {threads(1), 1};
  if (few && threads(2) <= kRowThreads) return {threads(2), 2};
  // The shape that leaves fewer lanes without work; four vectors where both leave the same.
  if (threads(2) <= kRowThreads && threads(2) * 2 < threads(4) * 4) return {threads(2), 2};
  if (threads(4) <= kRowThreads) return {threads(4), 4};
  return {threads(8), 8};
}

template <class In, Codes kCodes, Team kTeam>
auto row_kernel() -> void (*)(RowArgs<In>) {
  return quantize_rows < In, kCodes, kTeam, kTeam == Team::Block ? kAnyVectors : 4 > ;
}

template <class In>
int cluster_of(const SegmentedTensor& tensor, std::int32_t multiprocessors) {
  const Outline o = outline(tensor);
  if (o.segments * kMaxCluster <= multiprocessors) return kMaxCluster;
  const int64_t blocks = power_of_two(ceil_div(vectors_of<In>(o.elements), kBlockVectors));
  return static_cast<int>(std::clamp<int64_t>(blocks, 2, kMaxCluster));
}

template <class In>
cuda::Grid row_grid(const Launch<In>& launch, const Geometry& g, int cluster, int threads) {
  // Segments that a Dim makes shorter than a vector have single elements all the same.
  cuda::Grid grid = launch.grid(g.count * cluster, std::max(threads, cuda::kWarp));
  grid.cluster = cluster;
  return grid;
}

template <Codes kCodes, class In>
bool launches_tight_rows(const Launch<In>& launch, const Geometry& g, int cluster, Status& status) {
  const Recipe recipe = recipe_kind(launch.recipe());
  if (!ragged(launch, g) || !aligned_segments<kCodes>(launch, g)) return false;
  if ((cluster > 1 || kIsWide<In>) && recipe != Recipe::Usual) return false;
  const int64_t share = ceil_div(g.length / kPerVector<In>, cluster);
  const bool few = cluster == 1 && g.count <= launch.multiprocessors && !kIsWide<In>;
  const BlockShape shape = recipe == Recipe::Usual
                               ? block_shape(share, few)
                               : BlockShape{threads_of(share, kAnyVectors), kAnyVectors};
  const auto kernel = by_mode<kCodes>(launch.recipe(), [&](auto asymmetric) {
    return tight_row_kernel<In, kCodes, asymmetric.value>({recipe, shape.vectors, cluster > 1});
  });
  status = launch.run(kernel, row_grid(launch, g, cluster, shape.threads), tight_args(launch, g));
  return true;
}

template <Codes kCodes, class In>
bool launches_ragged_rows(const Launch<In>& launch, const Geometry& g, Status& status) {
  const int64_t vectors = g.length / kPerVector<In>;
  if (recipe_kind(launch.recipe()) != Recipe::Usual || vectors <= 2 * cuda::kWarp ||
      !ragged(launch, g))
    return false;
  const BlockShape shape = block_shape(vectors, false);
  auto args = tight_args(launch, g);
  args.vectors = static_cast<std::uint32_t>(g.length);
  const auto kernel = by_mode<kCodes>(launch.recipe(), [&](auto asymmetric) {
    return ragged_row_kernel<In, kCodes, asymmetric.value>(shape.vectors);
  });
  status = launch.run(kernel, row_grid(launch, g, 1, shape.threads), args);
  return true;
}

template <Codes kCodes, class In>
Status launch_rows(const Launch<In>& launch, int cluster) {
  const Geometry g = launch.geometry();
  if (g.count == 0) return Status::success();
  if (g.line_count != 1) return launch_lines<kCodes>(launch, g);
  Status status;
  if constexpr (kHasTightRows<In, kCodes>)
    if (launches_tight_rows<kCodes>(launch, g, cluster, status)) return status;
  if constexpr (kHasUnaligned<In, kCodes>)
    if (cluster == 1 && launches_ragged_rows<kCodes>(launch, g, status)) return status;
  const int64_t vectors = g.length / kPerVector<In>;
  const RowArgs<In> args{segment_args(launch, g), cluster};
  if (cluster > 1 || vectors > 4 * cuda::kWarp)
    return launch.run(
        row_kernel<In, kCodes, Team::Block>(),
        row_grid(launch, g, cluster, threads_of(ceil_div(vectors, cluster), kAnyVectors)), args);
  return launch.run(row_kernel<In, kCodes, Team::Warp>(),
                    launch.grid(ceil_div(g.count, kLaneThreads / cuda::kWarp), kLaneThreads), args);
}

template <class In, Codes kCodes>
Status preload_rows(const math::AffineRecipe<Compute<In>>& recipe, bool cluster) {
  PLANQ_TRY(preload_all(quantize_lines<In, kCodes>, row_kernel<In, kCodes, Team::Block>(),
                        row_kernel<In, kCodes, Team::Warp>()));
  if constexpr (kHasTightRows<In, kCodes>)
    return by_mode<kCodes>(recipe, [&](auto asymmetric) {
      for (const int vectors : {1, 2, 4, 8}) {
        const TightShape shape{recipe_kind(recipe), vectors, cluster};
        PLANQ_TRY(cuda::preload(tight_row_kernel<In, kCodes, asymmetric.value>(shape)));
        if constexpr (kHasUnaligned<In, kCodes>)
          if (!cluster)
            PLANQ_TRY(cuda::preload(ragged_row_kernel<In, kCodes, asymmetric.value>(vectors)));
      }
      return Status::success();
    });
  return Status::success();
}

}  // namespace planq::affine
