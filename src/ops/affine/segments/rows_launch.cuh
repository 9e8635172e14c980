// From a run to the kernels of rows.cuh and aligned_rows.cuh: segments of consecutive elements that
// a few lanes, a warp, a block or a cluster hold in registers.
#pragma once

#include <algorithm>
#include <bit>
#include <limits>

#include "ops/affine/heuristics_sm90.h"
#include "ops/affine/segments/aligned_rows.cuh"
#include "ops/affine/segments/elements_launch.cuh"
#include "ops/affine/segments/rows.cuh"

namespace planq::affine {

inline constexpr int64_t kBlockVectors = kRowThreads * 8;
inline constexpr int kMaxCluster = 8;

template <class In>
bool spreads(const Outline& o, std::int32_t multiprocessors, std::int32_t arch) {
  return has_clusters(arch) && vectors_of<In>(o.elements) >= kSpreadVectors &&
         o.segments * kMaxCluster <= multiprocessors;
}

inline cuda::Divider divider(int64_t d) { return cuda::Divider(static_cast<std::uint32_t>(d)); }

template <class In>
SegmentArgs<In> segment_args(const Launch<In>& launch, const Geometry& g) {
  auto args = launch.template args<SegmentArgs<In>>();
  args.segments = cuda::IndexSpace32(g.starts);
  args.count = static_cast<std::uint32_t>(g.count);
  args.length = args.tail = g.length;
  if (g.tail.pieces > 1) {
    args.groups = divider(g.tail.pieces);
    args.tail = g.tail.size;
  }
  return args;
}

// Whether quantize_unaligned_rows takes the segments: equal, and a fixed stride apart.
// quantize_aligned_rows wants them aligned besides.
template <class In>
bool regular(const Launch<In>& launch, const Geometry& g) {
  return g.starts.rank <= 1 && g.tail.pieces == 1 && g.length > 0 && is_regular(launch.spec());
}

// What regular_parameters() needs of a spec.
template <class Args>
void set_steps(Args& args) {
  using C = decltype(args.steps);
  args.exact = stores_exactly(args.spec);
  // Bounds so close to zero that a division by them might lose bits leave no segment ordinary.
  args.steps = args.spec.mode == Mode::Symmetric ? args.spec.q_max : args.spec.steps;
  args.inverse_steps =
      args.steps >= C(0x1p-30) ? C{1} / args.steps : std::numeric_limits<C>::quiet_NaN();
}

template <class In>
RegularArgs<In> regular_args(const Launch<In>& launch, const Geometry& g) {
  auto args = launch.template args<RegularArgs<In>>();
  if (g.starts.rank == 1) {
    const auto& stride = g.starts.axes[0].stride;
    args.input_stride = stride[kInput];
    args.output_stride = stride[kOutput];
    args.scale_stride = stride[kScale];
    args.zero_point_stride = stride[kZeroPoint];
  }
  args.count = static_cast<std::uint32_t>(g.count);
  args.vectors = static_cast<std::uint32_t>(g.length / kPerVector<In>);
  args.plain = stores_plainly(args.spec);
  args.clamps = needs_clamp(args.spec);
  set_steps(args);
  return args;
}

template <class In>
using RegularKernel = void (*)(RegularArgs<In>);

// What chooses among the instantiations of a regular kernel.
struct RegularShape {
  Variant variant;
  int vectors;  // of a thread; sets of a warp
  bool cluster = false;
};

// Generic instantiations come in one shape: so many sets of a warp, or vectors of a thread, no
// clusters, and aligned segments only.
inline constexpr int kGenericSets = 4, kGenericVectors = 8;

// The most sets of a warp of specialized kernels.
template <Codes kCodes>
inline constexpr int kMostSets = kCodes == Codes::Nibble ? 8 : 4;

template <class In, Codes kCodes, bool kAsymmetric>
RegularKernel<In> aligned_subwarp_kernel(RegularShape shape) {
  constexpr Variant kSpecialized = Variant::Specialized;
  const int sets = shape.vectors;
  if (shape.variant == kSpecialized) {
    if constexpr (kMostSets<kCodes> == 8)
      if (sets == 8) return quantize_regular_subwarps<In, kCodes, kSpecialized, 8, kAsymmetric>;
    return sets == 4   ? quantize_regular_subwarps<In, kCodes, kSpecialized, 4, kAsymmetric>
           : sets == 2 ? quantize_regular_subwarps<In, kCodes, kSpecialized, 2, kAsymmetric>
                       : quantize_regular_subwarps<In, kCodes, kSpecialized, 1, kAsymmetric>;
  }
  return quantize_regular_subwarps<In, kCodes, Variant::Generic, kGenericSets, kAsymmetric>;
}
template <class In, Codes kCodes, bool kAsymmetric>
RegularKernel<In> unaligned_subwarp_kernel() {
  return quantize_regular_subwarps<In, kCodes, Variant::Specialized, kUnalignedSets, kAsymmetric,
                                   true>;
}
template <class In, Codes kCodes, bool kAsymmetric>
RegularKernel<In> aligned_row_kernel(RegularShape shape) {
  constexpr Variant kSpecialized = Variant::Specialized;
  const int vectors = shape.vectors;
  if constexpr (kIsWide<In>) {
    if (shape.cluster)
      return vectors <= 4 ? quantize_aligned_rows<In, kCodes, kSpecialized, 4, kAsymmetric, true>
                          : quantize_aligned_rows<In, kCodes, kSpecialized, 8, kAsymmetric, true>;
    return vectors <= 2   ? quantize_aligned_rows<In, kCodes, kSpecialized, 2, kAsymmetric, false>
           : vectors == 4 ? quantize_aligned_rows<In, kCodes, kSpecialized, 4, kAsymmetric, false>
                          : quantize_aligned_rows<In, kCodes, kSpecialized, 8, kAsymmetric, false>;
  } else {
    if (shape.variant == kSpecialized && shape.cluster)
      return vectors <= 2   ? quantize_aligned_rows<In, kCodes, kSpecialized, 2, kAsymmetric, true>
             : vectors == 4 ? quantize_aligned_rows<In, kCodes, kSpecialized, 4, kAsymmetric, true>
                            : quantize_aligned_rows<In, kCodes, kSpecialized, 8, kAsymmetric, true>;
    if (shape.variant == kSpecialized)
      return vectors == 1   ? quantize_aligned_rows<In, kCodes, kSpecialized, 1, kAsymmetric, false>
             : vectors == 2 ? quantize_aligned_rows<In, kCodes, kSpecialized, 2, kAsymmetric, false>
             : vectors == 4
                 ? quantize_aligned_rows<In, kCodes, kSpecialized, 4, kAsymmetric, false>
                 : quantize_aligned_rows<In, kCodes, kSpecialized, 8, kAsymmetric, false>;
    return quantize_aligned_rows<In, kCodes, Variant::Generic, kGenericVectors, kAsymmetric, false>;
  }
}
template <class In, Codes kCodes, bool kAsymmetric>
RegularKernel<In> unaligned_row_kernel(int vectors) {
  constexpr Variant kSpecialized = Variant::Specialized;
  return vectors <= 2   ? quantize_unaligned_rows<In, kCodes, kSpecialized, 2, kAsymmetric>
         : vectors == 4 ? quantize_unaligned_rows<In, kCodes, kSpecialized, 4, kAsymmetric>
                        : quantize_unaligned_rows<In, kCodes, kSpecialized, 8, kAsymmetric>;
}

// --- Subwarps ----------------------------------------------------------------------------------

// Whether segments of `lanes` vectors follow one another without a gap, in input and output.
template <Codes kCodes, class In>
bool is_dense(const RegularArgs<In>& args, int lanes) {
  return args.vectors == static_cast<unsigned>(lanes) &&
         args.input_stride == lanes * kPerVector<In> &&
         args.output_stride == lanes * kWordBytes<In, kCodes>;
}

template <Codes kCodes, class In>
bool launches_regular_subwarps(const Launch<In>& launch, const Geometry& g, Status& status) {
  if (!regular(launch, g) || g.length % kPerVector<In> != 0) return false;
  auto args = regular_args(launch, g);
  const auto lanes = static_cast<int>(power_of_two(args.vectors));
  if (g.starts.rank == 0) {
    args.input_stride = lanes * kPerVector<In>;
    args.output_stride = lanes * kWordBytes<In, kCodes>;
  }
  if (!is_dense<kCodes>(args, lanes)) return false;
  const bool is_aligned = aligned_segments<kCodes>(launch, g);
  const bool many = g.count * lanes > kMostVectorsOfFourSets;
  RegularShape shape{variant_of(launch.spec()), std::min(lanes, many ? kMostSets<kCodes> : 4)};
  if (shape.variant == Variant::Generic) {
    // A set has no more segments than a segment has lanes.
    if (!is_aligned || lanes < kGenericSets) return false;
  } else if (!is_aligned) {
    if (!kHasUnaligned<In, kCodes> || lanes < kUnalignedSets || g.count * lanes < 2) return false;
  }
  args.lanes_log2 = std::countr_zero(static_cast<unsigned>(lanes));
  // Few warps: as many as there can be. Many: each with more loads under way.
  if (ceil_div(g.count * lanes, cuda::kWarp) <= launch.multiprocessors * 8) shape.vectors = 1;
  if (shape.variant == Variant::Generic) shape.vectors = kGenericSets;
  if (!is_aligned) shape.vectors = kUnalignedSets;
  const int64_t per_block = shape.vectors * kSubwarpThreads / lanes;
  const RegularKernel<In> kernel = by_mode<kCodes>(launch.spec(), [&](auto asymmetric) {
    if constexpr (kHasUnaligned<In, kCodes>)
      if (!is_aligned) return unaligned_subwarp_kernel<In, kCodes, asymmetric.value>();
    return aligned_subwarp_kernel<In, kCodes, asymmetric.value>(shape);
  });
  status =
      launch.run(kernel, launch.grid(ceil_div(g.count, per_block), kSubwarpThreads, true), args);
  return true;
}

template <Codes kCodes, class In>
Status launch_subwarps(const Launch<In>& launch) {
  const Geometry g = launch.geometry();
  if (g.count == 0) return Status::success();
  if (g.line_count != 1) return launch_lines<kCodes>(launch, g);
  if constexpr (kHasRegular<In, kCodes>) {
    Status status;
    if (launches_regular_subwarps<kCodes>(launch, g, status)) return status;
  }
  constexpr int kSets = 4;
  const int64_t lanes =
      std::max<int64_t>(power_of_two(g.length / kPerVector<In>), 2 * kPerVector<In>);
  const int64_t per_block = kSets * kSubwarpThreads / lanes;
  return launch.run(quantize_subwarps<In, kCodes, kSets>,
                    launch.grid(ceil_div(g.count, per_block), kSubwarpThreads, true),
                    SubwarpArgs<In>{segment_args(launch, g),
                                    std::countr_zero(static_cast<std::uint64_t>(lanes))});
}

template <class In, Codes kCodes>
Status preload_subwarps(const math::AffineSpec<Compute<In>>& spec) {
  PLANQ_TRY(preload_all(quantize_subwarps<In, kCodes, 4>, quantize_lines<In, kCodes>));
  if constexpr (kHasRegular<In, kCodes>)
    return by_mode<kCodes>(spec, [&](auto asymmetric) {
      for (const int sets : {1, 2, 4, kMostSets<kCodes>})
        PLANQ_TRY(cuda::preload(
            aligned_subwarp_kernel<In, kCodes, asymmetric.value>({variant_of(spec), sets})));
      if constexpr (kHasUnaligned<In, kCodes>)
        PLANQ_TRY(cuda::preload(unaligned_subwarp_kernel<In, kCodes, asymmetric.value>()));
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
  return quantize_rows < In, kCodes, kTeam, kTeam == Team::Block ? kGenericVectors : 4 > ;
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
  cuda::Grid grid = launch.grid(g.count * cluster, std::max(threads, cuda::kWarp), true);
  grid.cluster = cluster;
  return grid;
}

template <Codes kCodes, class In>
bool launches_aligned_rows(const Launch<In>& launch, const Geometry& g, int cluster,
                           Status& status) {
  const Variant variant = variant_of(launch.spec());
  if (!regular(launch, g) || !aligned_segments<kCodes>(launch, g)) return false;
  if ((cluster > 1 || kIsWide<In>) && variant != Variant::Specialized) return false;
  const int64_t share = ceil_div(g.length / kPerVector<In>, cluster);
  const bool few = cluster == 1 && g.count <= launch.multiprocessors && !kIsWide<In>;
  const BlockShape shape = variant == Variant::Specialized
                               ? block_shape(share, few)
                               : BlockShape{threads_of(share, kGenericVectors), kGenericVectors};
  const auto kernel = by_mode<kCodes>(launch.spec(), [&](auto asymmetric) {
    return aligned_row_kernel<In, kCodes, asymmetric.value>({variant, shape.vectors, cluster > 1});
  });
  status = launch.run(kernel, row_grid(launch, g, cluster, shape.threads), regular_args(launch, g));
  return true;
}

template <Codes kCodes, class In>
bool launches_unaligned_rows(const Launch<In>& launch, const Geometry& g, Status& status) {
  const int64_t vectors = g.length / kPerVector<In>;
  if (variant_of(launch.spec()) != Variant::Specialized || vectors <= 2 * cuda::kWarp ||
      !regular(launch, g))
    return false;
  const BlockShape shape = block_shape(vectors, false);
  auto args = regular_args(launch, g);
  args.vectors = static_cast<std::uint32_t>(g.length);
  const auto kernel = by_mode<kCodes>(launch.spec(), [&](auto asymmetric) {
    return unaligned_row_kernel<In, kCodes, asymmetric.value>(shape.vectors);
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
  if constexpr (kHasRegularRows<In, kCodes>)
    if (launches_aligned_rows<kCodes>(launch, g, cluster, status)) return status;
  if constexpr (kHasUnaligned<In, kCodes>)
    if (cluster == 1 && launches_unaligned_rows<kCodes>(launch, g, status)) return status;
  const int64_t vectors = g.length / kPerVector<In>;
  const RowArgs<In> args{segment_args(launch, g), cluster};
  if (cluster > 1 || vectors > 4 * cuda::kWarp)
    return launch.run(
        row_kernel<In, kCodes, Team::Block>(),
        row_grid(launch, g, cluster, threads_of(ceil_div(vectors, cluster), kGenericVectors)),
        args);
  return launch.run(
      row_kernel<In, kCodes, Team::Warp>(),
      launch.grid(ceil_div(g.count, kSubwarpThreads / cuda::kWarp), kSubwarpThreads, true), args);
}

template <class In, Codes kCodes>
Status preload_rows(const math::AffineSpec<Compute<In>>& spec, bool cluster) {
  PLANQ_TRY(preload_all(quantize_lines<In, kCodes>, row_kernel<In, kCodes, Team::Block>(),
                        row_kernel<In, kCodes, Team::Warp>()));
  if constexpr (kHasRegularRows<In, kCodes>)
    return by_mode<kCodes>(spec, [&](auto asymmetric) {
      for (const int vectors : {1, 2, 4, 8}) {
        const RegularShape shape{variant_of(spec), vectors, cluster};
        PLANQ_TRY(cuda::preload(aligned_row_kernel<In, kCodes, asymmetric.value>(shape)));
        if constexpr (kHasUnaligned<In, kCodes>)
          if (!cluster)
            PLANQ_TRY(cuda::preload(unaligned_row_kernel<In, kCodes, asymmetric.value>(vectors)));
      }
      return Status::success();
    });
  return Status::success();
}

}  // namespace planq::affine
