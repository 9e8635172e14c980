// From a plan and operands to kernels: which body of a method fits the operands, with what grid and
// what arguments.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <limits>

#include "core/scratch.h"
#include "cuda/launch.cuh"
#include "ops/affine/aligned_rows.cuh"
#include "ops/affine/columns.cuh"
#include "ops/affine/dynamic_range_quantize/cuda_layout.h"
#include "ops/affine/elements.cuh"
#include "ops/affine/parameter_kernels.h"
#include "ops/affine/resident.cuh"
#include "ops/affine/rows.cuh"
#include "ops/affine/split.cuh"
#include "ops/affine/tiles.cuh"

namespace planq::dynamic_range_quantize {
namespace {

// --- What a launch works from ------------------------------------------------------------------

struct Launch {
  Fields given;
  std::int32_t multiprocessors, arch;
  const Operands& operands;
  Workspace workspace;
  Bound& bound;

  const Fields& fields() const { return given; }
  // Launches that wait for the one before them need the hardware for it.
  cuda::Grid grid(int64_t blocks, dim3 threads, bool dependent = false) const {
    return {blocks, threads, 1, dependent && arch >= 90};
  }
  template <class Args>
  Status run(void (*kernel)(Args), const cuda::Grid& grid, const Args& args) const {
    return grid.blocks == 0 ? Status::success() : cuda::launch(kernel, grid, args, bound);
  }
  // The members that all argument structs share.
  template <class Args>
  Args args() const {
    Args args{};
    args.input = static_cast<const In*>(operands[kInput].data);
    args.output = static_cast<std::uint8_t*>(operands[kOutput].data);
    args.scale = operands[kScale].data;
    args.zero_point = static_cast<std::int32_t*>(operands[kZeroPoint].data);
    args.recipe = recipe_of<C>(fields());
    args.order = fields().nibble_order;
    return args;
  }
};

// --- Scattered elements ------------------------------------------------------------------------

ElementArgs<In> element_args(const Launch& launch, const Geometry& g) {
  auto args = launch.args<ElementArgs<In>>();
  args.segments = g.segments;
  args.lines = g.lines;
  args.count = g.count;
  args.line_count = g.line_count;
  args.length = g.length;
  args.tail = g.tail;
  args.line_tail = g.line_tail;
  return args;
}

template <Codes kCodes>
Status launch_lines(const Launch& launch, const Geometry& g) {
  return launch.run(quantize_lines<In, kCodes>, launch.grid(g.count, kSplitThreads),
                    element_args(launch, g));
}

// Index of the parameters along every axis, in the place of the scale's offset.
void set_rows(const Fields& f, const Strides& strides, ElementArgs<In>& args) {
  const int last = f.shape.rank - 1;
  const Shape parameters = parameter_shape(f);
  // How far a piece of an axis moves in the parameters.
  const auto step = [&](int axis) {
    const int along = parameter_axis(f.shape, f.scope, axis).axis;
    return along < 0 ? 0 : parameters.product(along + 1, parameters.rank);
  };
  for (int i = 0; i < last; ++i) {
    Axis row = strides.axis(f.shape[i], i, -1);
    row.stride[kScale] = step(i);
    row.divisor = piece_of(f, i);
    if (row.divisor > 1) row.grouped = 1u << kScale;
    args.rows.append(row);
  }
  args.rows.merge();
  args.row_count = args.rows.size();
  args.row_length = f.shape[last];
  args.row_step = step(last);
  args.row_divisor = piece_of(f, last);
}

using ElementParameters = math::SegmentParameters<C>;

std::size_t element_workspace(const Fields& f) {
  Scratch scratch;
  scratch.take<ElementParameters>(static_cast<std::size_t>(outline(f).segments));
  return scratch.bytes();
}

template <Codes kCodes>
Status launch_elements(const Launch& launch) {
  const Fields& f = launch.fields();
  const Geometry g = geometry_of(f, launch.operands);
  ElementArgs<In> args = element_args(launch, g);
  Scratch scratch(launch.workspace);
  args.parameters = scratch.take<ElementParameters>(static_cast<std::size_t>(g.count));
  set_rows(f, Strides(launch.operands), args);
  PLANQ_TRY(launch.run(parameter_kernels<In>().element_ranges,
                       launch.grid(std::min(g.count, cuda::kMaxIndex), kSplitThreads), args));
  const int64_t bytes = args.row_count * code_bytes(f, args.row_length);
  return launch.run(
      element_codes<In, kCodes>,
      launch.grid(std::min(ceil_div(bytes, kSplitThreads), cuda::kMaxIndex), kSplitThreads, true),
      args);
}

// --- Segments in registers ---------------------------------------------------------------------

cuda::Divider divider(int64_t d) { return cuda::Divider(static_cast<std::uint32_t>(d)); }

SegmentArgs<In> segment_args(const Launch& launch, const Geometry& g) {
  auto args = launch.args<SegmentArgs<In>>();
  args.segments = cuda::Lines(g.segments);
  args.count = static_cast<std::uint32_t>(g.count);
  args.length = args.tail = g.length;
  if (g.tail.pieces > 1) {
    args.groups = divider(g.tail.pieces);
    args.tail = g.tail.size;
  }
  return args;
}

template <Codes kCodes>
bool aligned_segments(const Launch& launch, const Geometry& g) {
  return g.length % kVector == 0 && g.tail.size % kVector == 0 &&
         aligned(launch.operands, g.segments, kWordBytes<In, kCodes>);
}

// Whether quantize_ragged_rows takes the segments: equal, and a fixed stride apart.
// quantize_tight_* want them aligned besides.
bool ragged(const Launch& launch, const Geometry& g) {
  return g.segments.rank <= 1 && g.tail.pieces == 1 && g.length > 0 &&
         (!is_fp8(launch.fields().output_dtype) || launch.fields().q_min < 0);
}
template <Codes kCodes>
bool tight(const Launch& launch, const Geometry& g) {
  return ragged(launch, g) && aligned_segments<kCodes>(launch, g);
}

// Whether storing a scale changes nothing; q_max < 1 may have to bound it.
bool stores_exactly(const Fields& f) {
  const bool holds = f.scale_dtype == DType::Float64 ||
                     (f.scale_dtype == DType::Float32 && std::is_same_v<C, float>);
  return holds && f.q_max >= 1;
}

bool stores_plainly(const Fields& f) {
  return f.scale_dtype == (std::is_same_v<C, double> ? DType::Float64 : DType::Float32);
}

// Whether codes have to be compared with q_min and q_max. A symmetric quotient ends at q_max, give
// or take a rounding that no code sees, as long as the scale is the one that was computed. An
// asymmetric one saturates where the bounds are those of the type.
bool needs_clamp(const Fields& f) {
  if (f.mode == Mode::Symmetric) return f.q_min > -f.q_max || !stores_exactly(f);
  return f.q_max - f.q_min != (1 << bits_of(f.output_dtype)) - 1;
}

TightArgs<In> tight_args(const Launch& launch, const Geometry& g) {
  auto args = launch.args<TightArgs<In>>();
  if (g.segments.rank == 1) {
    const auto& stride = g.segments.axes[0].stride;
    args.input_stride = stride[kInput];
    args.output_stride = stride[kOutput];
    args.scale_stride = stride[kScale];
    args.zero_point_stride = stride[kZeroPoint];
  }
  args.count = static_cast<std::uint32_t>(g.count);
  args.vectors = static_cast<std::uint32_t>(g.length / kVector);
  const Fields& f = launch.fields();
  args.exact = stores_exactly(f);
  args.plain = stores_plainly(f);
  args.clamps = needs_clamp(f);
  // Bounds so close to zero that a division by them might lose bits leave no segment ordinary.
  args.steps = f.mode == Mode::Symmetric ? args.recipe.q_max : args.recipe.steps;
  args.inverse_steps =
      args.steps >= C(0x1p-30) ? C{1} / args.steps : std::numeric_limits<C>::quiet_NaN();
  return args;
}

using TightKernel = void (*)(TightArgs<In>);

// What chooses among the instances of a tight kernel.
struct TightShape {
  Recipe recipe;
  int vectors;  // of a thread; sets of a warp
  bool cluster = false;
};

// Whether there are bodies for regular segments. float64, which no engine stores, and
// float8_e5m2, a rare choice for anything but gradients, have those for any segments alone.
inline constexpr bool kIsWide = std::is_same_v<C, double>;
template <Codes kCodes>
inline constexpr bool kHasTight = !kIsWide && kCodes != Codes::E5M2;
// Lanes that begin anywhere, and rows that do: codes of whole bytes.
template <Codes kCodes>
inline constexpr bool kHasUnaligned = kHasTight<kCodes> && kCodes != Codes::Nibble;

// Kernels for unusual recipes come in one shape: so many sets of a warp, or vectors of a thread, no
// clusters, and aligned segments only.
inline constexpr int kAnySets = 4, kAnyVectors = 8;

template <Codes kCodes, bool kAsymmetric>
TightKernel tight_lane_kernel(TightShape shape) {
  constexpr Recipe kUsual = Recipe::Usual;
  const int sets = shape.vectors;
  if (shape.recipe == kUsual)
    return sets == 8   ? quantize_tight_lanes<In, kCodes, kUsual, 8, kAsymmetric>
           : sets == 4 ? quantize_tight_lanes<In, kCodes, kUsual, 4, kAsymmetric>
           : sets == 2 ? quantize_tight_lanes<In, kCodes, kUsual, 2, kAsymmetric>
                       : quantize_tight_lanes<In, kCodes, kUsual, 1, kAsymmetric>;
  return quantize_tight_lanes<In, kCodes, Recipe::Any, kAnySets, kAsymmetric>;
}
template <Codes kCodes, bool kAsymmetric>
TightKernel shifted_lane_kernel() {
  return quantize_tight_lanes<In, kCodes, Recipe::Usual, kShiftedSets, kAsymmetric, true>;
}
template <Codes kCodes, bool kAsymmetric>
TightKernel tight_row_kernel(TightShape shape) {
  constexpr Recipe kUsual = Recipe::Usual;
  const int vectors = shape.vectors;
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
template <Codes kCodes, bool kAsymmetric>
TightKernel ragged_row_kernel(int vectors) {
  constexpr Recipe kUsual = Recipe::Usual;
  return vectors <= 2   ? quantize_ragged_rows<In, kCodes, kUsual, 2, kAsymmetric>
         : vectors == 4 ? quantize_ragged_rows<In, kCodes, kUsual, 4, kAsymmetric>
                        : quantize_ragged_rows<In, kCodes, kUsual, 8, kAsymmetric>;
}

// Calls use(true_type) for asymmetric recipes; fp8 codes have no zero point, so none are.
template <Codes kCodes, class Use>
auto by_mode(const Fields& f, const Use& use) {
  if constexpr (!is_float8(kCodes))
    if (f.mode == Mode::Asymmetric) return use(std::true_type{});
  return use(std::false_type{});
}

Recipe recipe_kind(const Fields& f) {
  const bool usual = f.quotient == Quotient::Divide && stores_plainly(f) && stores_exactly(f) &&
                     !needs_clamp(f) && f.output_dtype != DType::Float8E5M2;
  return usual ? Recipe::Usual : Recipe::Any;
}

// Whether segments of `lanes` vectors follow one another without a gap, in input and output.
template <Codes kCodes>
bool is_dense(const TightArgs<In>& args, int lanes) {
  return args.vectors == static_cast<unsigned>(lanes) && args.input_stride == lanes * kVector &&
         args.output_stride == lanes * kWordBytes<In, kCodes>;
}

template <Codes kCodes>
bool launches_tight_lanes(const Launch& launch, const Geometry& g, Status& status) {
  if (!ragged(launch, g) || g.length % kVector != 0) return false;
  auto args = tight_args(launch, g);
  const auto lanes = static_cast<int>(power_of_two(args.vectors));
  if (g.segments.rank == 0) {
    args.input_stride = lanes * kVector;
    args.output_stride = lanes * kWordBytes<In, kCodes>;
  }
  if (!is_dense<kCodes>(args, lanes)) return false;
  const bool aligned = aligned_segments<kCodes>(launch, g);
  TightShape shape{recipe_kind(launch.fields()), std::min(lanes, 8)};
  if (shape.recipe == Recipe::Any) {
    // A set has no more segments than a segment has lanes.
    if (!aligned || lanes < kAnySets) return false;
  } else if (!aligned) {
    if (!kHasUnaligned<kCodes> || lanes < kShiftedSets || g.count * lanes < 2) return false;
  }
  args.lanes_log2 = std::countr_zero(static_cast<unsigned>(lanes));
  // Few warps: as many as there can be. Many: each with more loads under way.
  if (ceil_div(g.count * lanes, cuda::kWarp) <= launch.multiprocessors * 8) shape.vectors = 1;
  if (shape.recipe == Recipe::Any) shape.vectors = kAnySets;
  if (!aligned) shape.vectors = kShiftedSets;
  const int64_t per_block = shape.vectors * kLaneThreads / lanes;
  const TightKernel kernel = by_mode<kCodes>(launch.fields(), [&](auto asymmetric) {
    if constexpr (kHasUnaligned<kCodes>)
      if (!aligned) return shifted_lane_kernel<kCodes, asymmetric.value>();
    return tight_lane_kernel<kCodes, asymmetric.value>(shape);
  });
  status = launch.run(kernel, launch.grid(ceil_div(g.count, per_block), kLaneThreads), args);
  return true;
}

template <Codes kCodes>
Status launch_lanes(const Launch& launch) {
  const Geometry g = geometry_of(launch.fields(), launch.operands);
  if (g.count == 0) return Status::success();
  if (g.line_count != 1) return launch_lines<kCodes>(launch, g);
  if constexpr (kHasTight<kCodes>) {
    Status status;
    if (launches_tight_lanes<kCodes>(launch, g, status)) return status;
  }
  constexpr int kSets = 4;
  const int64_t lanes = std::max<int64_t>(power_of_two(g.length / kVector), 2 * kVector);
  const int64_t per_block = kSets * kLaneThreads / lanes;
  return launch.run(
      quantize_lanes<In, kCodes, kSets>, launch.grid(ceil_div(g.count, per_block), kLaneThreads),
      LaneArgs<In>{segment_args(launch, g), std::countr_zero(static_cast<std::uint64_t>(lanes))});
}

// Threads of a block and vectors of a thread.
struct BlockShape {
  int threads, vectors;
};

int threads_of(int64_t vectors, int per_thread) {
  return static_cast<int>(ceil_div(ceil_div(vectors, per_thread), cuda::kWarp) * cuda::kWarp);
}

BlockShape block_shape(int64_t vectors, bool few) {
  const auto threads = [&](int per_thread) { return threads_of(vectors, per_thread); };
  // Blocks that have a multiprocessor to themselves: little work for each thread.
  if (few && threads(1) <= kWideRowThreads) return {threads(1), 1};
  if (few && threads(2) <= kRowThreads) return {threads(2), 2};
  // The shape that leaves fewer lanes without work; four vectors where both leave the same.
  if (threads(2) <= kRowThreads && threads(2) * 2 < threads(4) * 4) return {threads(2), 2};
  if (threads(4) <= kRowThreads) return {threads(4), 4};
  return {threads(8), 8};
}

template <Codes kCodes, Team kTeam>
auto row_kernel() -> void (*)(RowArgs<In>) {
  return quantize_rows < In, kCodes, kTeam, kTeam == Team::Block ? kAnyVectors : 4 > ;
}

int cluster_of(const Fields& f, std::int32_t multiprocessors) {
  const Outline o = outline(f);
  if (o.segments * kMaxCluster <= multiprocessors) return kMaxCluster;
  const int64_t blocks = power_of_two(ceil_div(vectors_of(o.elements), kBlockVectors));
  return static_cast<int>(std::clamp<int64_t>(blocks, 2, kMaxCluster));
}

template <Codes kCodes>
Status launch_rows(const Launch& launch, int cluster) {
  const Geometry g = geometry_of(launch.fields(), launch.operands);
  if (g.count == 0) return Status::success();
  if (g.line_count != 1) return launch_lines<kCodes>(launch, g);
  const int64_t vectors = g.length / kVector;
  const Fields& f = launch.fields();
  const Recipe recipe = recipe_kind(f);
  const bool usual = recipe == Recipe::Usual;
  const bool is_tight = kHasTight<kCodes> && tight<kCodes>(launch, g) && (cluster == 1 || usual);
  const bool is_ragged = kHasUnaligned<kCodes> && !is_tight && usual && cluster == 1 &&
                         vectors > 2 * cuda::kWarp && ragged(launch, g);
  const bool few = g.count * cluster <= launch.multiprocessors;
  const int64_t share = ceil_div(vectors, cluster);
  const BlockShape shape = (is_tight && usual) || is_ragged
                               ? block_shape(share, few && cluster == 1 && is_tight)
                               : BlockShape{threads_of(share, kAnyVectors), kAnyVectors};
  // Segments that a Dim makes shorter than a vector have single elements all the same.
  const int threads = std::max(shape.threads, cuda::kWarp);
  cuda::Grid grid = launch.grid(g.count * cluster, threads);
  grid.cluster = cluster;
  const TightShape tight_shape{recipe, shape.vectors, cluster > 1};
  if constexpr (kHasTight<kCodes>) {
    if (is_tight) {
      const auto kernel = by_mode<kCodes>(f, [&](auto asymmetric) {
        return tight_row_kernel<kCodes, asymmetric.value>(tight_shape);
      });
      return launch.run(kernel, grid, tight_args(launch, g));
    }
  }
  if constexpr (kHasUnaligned<kCodes>) {
    if (is_ragged) {
      auto args = tight_args(launch, g);
      args.vectors = static_cast<std::uint32_t>(g.length);
      const auto kernel = by_mode<kCodes>(f, [&](auto asymmetric) {
        return ragged_row_kernel<kCodes, asymmetric.value>(shape.vectors);
      });
      return launch.run(kernel, grid, args);
    }
  }
  const RowArgs<In> args{segment_args(launch, g), cluster};
  if (cluster > 1 || vectors > 4 * cuda::kWarp)
    return launch.run(row_kernel<kCodes, Team::Block>(), grid, args);
  return launch.run(row_kernel<kCodes, Team::Warp>(),
                    launch.grid(ceil_div(g.count, kLaneThreads / cuda::kWarp), kLaneThreads), args);
}

// --- Two passes --------------------------------------------------------------------------------

struct SplitShape {
  std::int32_t parts;
  Partial<In>* partials;
  FlatParameters<C>* parameters;
};

std::int32_t parts_of(int64_t segments, int64_t blocks, int64_t most) {
  const int64_t wanted = std::max<int64_t>(1, blocks / std::max<int64_t>(segments, 1));
  return static_cast<std::int32_t>(
      std::min({wanted, std::max<int64_t>(1, most), int64_t{kMaxParts}}));
}

SplitShape book_split(const Fields& f, std::int32_t multiprocessors, Scratch& scratch) {
  const Outline o = outline(f);
  const std::int32_t parts = parts_of(o.segments, int64_t{multiprocessors} * kFlatRangeBlocks,
                                      ceil_div(vectors_of(o.elements), kFlatTile));
  SplitShape shape{parts, nullptr, nullptr};
  shape.partials = scratch.take<Partial<In>>(static_cast<std::size_t>(o.segments * parts));
  shape.parameters = scratch.take<FlatParameters<C>>(static_cast<std::size_t>(o.segments));
  return shape;
}

// What is enough for book_split at any extents up to these. Segments that are cut have together at
// most as many parts as there are blocks.
std::size_t largest_split(const Fields& f, std::int32_t multiprocessors) {
  const Outline o = outline(f);
  const int64_t most = std::min<int64_t>(kMaxParts, ceil_div(vectors_of(o.elements), kFlatTile));
  const int64_t cut = std::min(int64_t{multiprocessors} * kFlatRangeBlocks, o.segments * most);
  Scratch scratch;
  scratch.take<Partial<In>>(static_cast<std::size_t>(std::max(o.segments, cut)));
  scratch.take<FlatParameters<C>>(static_cast<std::size_t>(o.segments));
  return scratch.bytes();
}

// Whether every segment is one run of whole, aligned vectors, which 32 bits number.
template <Codes kCodes>
bool is_flat(const Launch& launch, const Geometry& g) {
  return g.line_count == 1 && g.length > 0 && g.length / kVector <= cuda::kMaxIndex - kFlatTile &&
         g.count * ceil_div(g.length / kVector, kFlatTile) <= cuda::kMaxIndex &&
         aligned_segments<kCodes>(launch, g);
}

template <Codes kCodes>
auto flat_code_kernel(const Fields& f) -> void (*)(SplitArgs<In>) {
  const bool usual = recipe_kind(f) == Recipe::Usual;
  return by_mode<kCodes>(f, [&](auto asymmetric) -> void (*)(SplitArgs<In>) {
    if constexpr (kHasTight<kCodes>)
      if (usual) return flat_codes<In, kCodes, Recipe::Usual, asymmetric.value>;
    return flat_codes<In, kCodes, Recipe::Any, asymmetric.value>;
  });
}

SplitArgs<In> split_args(const Launch& launch, const Geometry& g) {
  auto args = launch.args<SplitArgs<In>>();
  args.segments = g.segments;
  args.lines = g.lines;
  args.line_count = g.line_count;
  args.length = g.length;
  args.groups = g.tail.pieces;
  args.tail = g.tail.size;
  args.clamps = needs_clamp(launch.fields());
  return args;
}

template <Codes kCodes>
Status launch_split(const Launch& launch) {
  const Fields& f = launch.fields();
  const Geometry g = geometry_of(f, launch.operands);
  const std::int32_t multiprocessors = launch.multiprocessors;
  Scratch scratch(launch.workspace);
  const SplitShape shape = book_split(f, multiprocessors, scratch);
  auto args = split_args(launch, g);
  args.partials = shape.partials;
  args.parts = shape.parts;
  const int64_t blocks = g.count * shape.parts;
  if (!is_flat<kCodes>(launch, g)) {
    PLANQ_TRY(
        launch.run(parameter_kernels<In>().split_ranges, launch.grid(blocks, kSplitThreads), args));
    return launch.run(split_codes<In, kCodes>, launch.grid(blocks, kSplitThreads, true), args);
  }
  args.parameters = shape.parameters;
  args.code_parts = static_cast<std::int32_t>(ceil_div(g.length / kVector, kFlatTile));
  args.keep = g.count * g.length * static_cast<int64_t>(sizeof(In)) <= kCachedBytes;
  const ParameterKernels<In> shared = parameter_kernels<In>();
  PLANQ_TRY(launch.run(shared.flat_ranges, launch.grid(blocks, kFlatThreads), args));
  PLANQ_TRY(launch.run(shared.flat_parameters, launch.grid(g.count, kFlatThreads, true), args));
  return launch.run(flat_code_kernel<kCodes>(f),
                    launch.grid(g.count * args.code_parts, kFlatThreads, true), args);
}

// --- A tensor on the chip ----------------------------------------------------------------------

template <Codes kCodes>
auto resident_kernel(const Fields& f) -> void (*)(SplitArgs<In>) {
  return by_mode<kCodes>(f, [](auto asymmetric) {
    return quantize_resident<In, kCodes, Recipe::Usual, asymmetric.value>;
  });
}

// Four-bit codes of a whole tensor are as rare as float8_e5m2.
template <Codes kCodes>
inline constexpr bool kHasResident = kHasTight<kCodes> && kCodes != Codes::Nibble;

Partial<In>* book_resident(std::int32_t multiprocessors, Scratch& scratch) {
  return scratch.take<Partial<In>>(static_cast<std::size_t>(multiprocessors));
}

// Other recipes and layouts go the way of the two passes.
template <Codes kCodes>
Status launch_resident(const Launch& launch) {
  const Fields& f = launch.fields();
  const Geometry g = geometry_of(f, launch.operands);
  const bool fits = recipe_kind(f) == Recipe::Usual && is_flat<kCodes>(launch, g) &&
                    (!is_fp8(f.output_dtype) || f.q_min < 0);
  if (!fits) return launch_split<kCodes>(launch);
  Scratch scratch(launch.workspace);
  auto args = split_args(launch, g);
  args.partials = book_resident(launch.multiprocessors, scratch);
  const int64_t blocks =
      std::min<int64_t>(launch.multiprocessors, ceil_div(g.length / kVector, kResidentThreads));
  cuda::Grid grid = launch.grid(blocks, kResidentThreads);
  grid.cooperative = true;
  grid.shared_bytes = kHeldBytes;
  // A stream with a share of the multiprocessors gets the same bits in two passes.
  return cuda::launch_or(
      resident_kernel<kCodes>(f), grid, args, launch.bound, [&](Bound& otherwise) {
        return launch_split<kCodes>({launch.given, launch.multiprocessors, launch.arch,
                                     launch.operands, launch.workspace, otherwise});
      });
}

// --- Columns -----------------------------------------------------------------------------------

// Threads of a block across columns, a power of two.
int column_threads(int64_t columns, int per_thread, int most) {
  return static_cast<int>(std::min<int64_t>(most, power_of_two(ceil_div(columns, per_thread))));
}

struct ColumnShape {
  int64_t rows, columns, chunk_rows;
  std::int32_t chunks;
  Partial<In>* partials;
  ColumnArrays<C> parameters;
};

// Chunks of rows that give every multiprocessor `blocks` blocks of `threads`, a warp across
// columns, as far as every thread then has kRowsAhead rows.
int64_t chunks_of(const ColumnShape& shape, int per_thread, int threads, int64_t blocks) {
  const int across = column_threads(shape.columns, per_thread, cuda::kWarp);
  const int64_t tiles = std::max<int64_t>(1, ceil_div(shape.columns, across * per_thread));
  const int64_t down = threads / across * kRowsAhead;
  return std::clamp<int64_t>(blocks / tiles, 1, std::max<int64_t>(1, ceil_div(shape.rows, down)));
}

int64_t chunk_rows_of(const ColumnShape& shape, int64_t chunks) {
  return std::max<int64_t>(1, ceil_div(shape.rows, chunks));
}

ColumnShape book_columns(const Fields& f, std::int32_t multiprocessors, Scratch& scratch) {
  const Outline o = outline(f);
  ColumnShape shape{};
  shape.rows = o.outer;
  shape.columns = o.segments * o.inner;
  shape.chunk_rows = chunk_rows_of(shape, chunks_of(shape, kVector, kColumnRangeThreads,
                                                    int64_t{multiprocessors} * kColumnRangeBlocks));
  shape.chunks = static_cast<std::int32_t>(ceil_div(shape.rows, shape.chunk_rows));
  shape.partials =
      scratch.take<Partial<In>>(static_cast<std::size_t>(shape.chunks * shape.columns));
  const auto channels = static_cast<std::size_t>(o.segments);
  shape.parameters = {scratch.take<C>(channels), scratch.take<C>(channels),
                      scratch.take<std::int32_t>(channels), scratch.take<bool>(channels)};
  return shape;
}

// What is enough for book_columns at any extents up to these. Columns that are cut into chunks have
// together at most as many as blocks have threads across.
std::size_t largest_columns(const Fields& f, std::int32_t multiprocessors) {
  const Outline o = outline(f);
  const int64_t columns = o.segments * o.inner;
  const int64_t wide = int64_t{column_threads(columns, kVector, cuda::kWarp)} * kVector;
  const int64_t cut = std::min(int64_t{multiprocessors} * kColumnRangeBlocks * wide,
                               columns * std::max<int64_t>(o.outer, 1));
  Scratch scratch;
  scratch.take<Partial<In>>(static_cast<std::size_t>(std::max(columns, cut)));
  const auto channels = static_cast<std::size_t>(o.segments);
  scratch.take<C>(channels);
  scratch.take<C>(channels);
  scratch.take<std::int32_t>(channels);
  scratch.take<bool>(channels);
  return scratch.bytes();
}

// The rows of the view [outer, channels * inner], or false where no such view exists.
bool column_rows(const Fields& f, const Operands& operands, int64_t columns, Space& lines) {
  const int last = f.shape.rank - 1, axis = f.scope.axis;
  const Strides strides(operands);
  Geometry view;
  view.length = f.shape[last];
  for (int i = axis; i < last; ++i) view.lines.append(strides.axis(f.shape[i], i, -1));
  join_lines(f, view);
  if (view.lines.rank > 0 || view.length != columns) return false;
  for (int i = 0; i < axis; ++i) lines.append(strides.axis(f.shape[i], i, -1));
  lines.merge();
  return true;
}

// Whether threads take whole vectors of columns; one of float64 would be two of them.
template <Codes kCodes>
bool aligned_columns(const Launch& launch, const Space& lines, int64_t columns) {
  return !kIsWide && columns % kVector == 0 &&
         aligned(launch.operands, lines, kWordBytes<In, kCodes>);
}

// A kernel over tiles of columns and chunks of rows; sets the arguments that say so.
cuda::Grid column_grid(const Launch& launch, ColumnArgs<In>& args, int per_thread, int threads,
                       int64_t chunk_rows, bool dependent) {
  const int across = column_threads(args.columns, per_thread, cuda::kWarp);
  args.tiles = static_cast<std::int32_t>(ceil_div(args.columns, across * per_thread));
  args.chunk_rows = chunk_rows;
  return launch.grid(args.tiles * ceil_div(args.rows, chunk_rows), dim3(across, threads / across),
                     dependent);
}

template <Codes kCodes>
auto channel_kernel(const Fields& f, bool vector, bool equal) -> void (*)(ColumnArgs<In>) {
  if constexpr (kHasTight<kCodes>)
    if (vector && equal && recipe_kind(f) == Recipe::Usual)
      return by_mode<kCodes>(
          f, [](auto asymmetric) { return usual_channels<In, kCodes, asymmetric.value>; });
  if constexpr (!kIsWide)
    if (vector) return any_channels<In, kCodes, true>;
  return any_channels<In, kCodes, false>;
}

template <Codes kCodes>
Status launch_columns(const Launch& launch) {
  const Fields& f = launch.fields();
  const Outline o = outline(f);
  const int64_t multiprocessors = launch.multiprocessors;
  Scratch scratch(launch.workspace);
  const ColumnShape shape = book_columns(f, launch.multiprocessors, scratch);
  auto args = launch.args<ColumnArgs<In>>();
  if (!column_rows(f, launch.operands, shape.columns, args.lines))
    return launch_elements<kCodes>(launch);
  args.rows = shape.rows;
  args.columns = shape.columns;
  args.inner = std::max<int64_t>(o.inner, 1);
  args.chunks = shape.chunks;
  args.partials = shape.partials;
  args.parameters = shape.parameters;
  const int64_t input_bytes = args.rows * args.columns * static_cast<int64_t>(sizeof(In));
  args.keep = input_bytes <= kCachedBytes;
  const bool vector = aligned_columns<kCodes>(launch, args.lines, args.columns);
  const bool equal = args.lines.rank <= 1;
  const cuda::Grid ranges =
      column_grid(launch, args, vector ? kVector : 1, kColumnRangeThreads, shape.chunk_rows, false);
  const ParameterKernels<In> shared = parameter_kernels<In>();
  PLANQ_TRY(launch.run(!vector ? shared.column_ranges
                       : equal ? shared.equal_column_ranges
                               : shared.aligned_column_ranges,
                       ranges, args));
  const dim3 finish_threads(cuda::kWarp, kColumnThreads / cuda::kWarp);
  PLANQ_TRY(launch.run(
      shared.column_finish,
      launch.grid(ceil_div(o.segments, cuda::kWarp), finish_threads, ranges.blocks > 0), args));
  const int per_thread = vector ? kVector : kColumns<In, kCodes, false>;
  // A small matrix: all blocks at once. A large one: two or more after one another.
  const int64_t blocks = multiprocessors * kColumnCodeBlocks * (args.keep ? 1 : 2);
  const int64_t chunks = chunks_of(shape, per_thread, kColumnThreads, blocks);
  const int64_t chunk_rows = std::min(chunk_rows_of(shape, chunks), kMostChunkRows);
  const cuda::Grid codes =
      column_grid(launch, args, per_thread, kColumnThreads, chunk_rows, args.keep);
  return launch.run(channel_kernel<kCodes>(f, vector, equal), codes, args);
}

template <Codes kCodes>
auto column_group_kernel([[maybe_unused]] bool vector) -> void (*)(ColumnArgs<In>) {
  if constexpr (!kIsWide)
    if (vector) return column_groups<In, kCodes, true>;
  return column_groups<In, kCodes, false>;
}

template <Codes kCodes>
Status launch_column_groups(const Launch& launch) {
  const Fields& f = launch.fields();
  const int last = f.shape.rank - 1, axis = f.scope.axis;
  const Strides strides(launch.operands);
  const int64_t extent = f.shape[axis], size = f.scope.size, groups = ceil_div(extent, size);
  auto args = launch.args<ColumnArgs<In>>();
  args.group_divisor = 1;
  for (int i = 0; i < last; ++i) {
    args.lines.append(i == axis ? strides.axis(groups, i, i, size)
                                : strides.axis(f.shape[i], i, i));
    if (i > axis) args.group_divisor *= f.shape[i];
  }
  args.lines.merge();
  args.rows = std::min(size, extent);
  args.groups = groups > 1 && extent % size != 0 ? groups : 1;
  args.tail = extent - (groups - 1) * size;
  args.columns = f.shape[last];
  args.input_step = launch.operands[kInput].strides[axis];
  args.output_step = launch.operands[kOutput].strides[axis];
  const bool vector = aligned_columns<kCodes>(launch, args.lines, args.columns) &&
                      args.input_step % kVector == 0 &&
                      args.output_step % kWordBytes<In, kCodes> == 0;
  const int per_thread = vector ? kVector : kColumns<In, kCodes, false>;
  const int across = column_threads(args.columns, per_thread, kMaxTileColumns / kVector);
  args.tiles = static_cast<std::int32_t>(ceil_div(args.columns, across * per_thread));
  const cuda::Grid grid =
      launch.grid(args.lines.size() * args.tiles, dim3(across, kColumnThreads / across));
  return launch.run(column_group_kernel<kCodes>(vector), grid, args);
}

// --- Tiles -------------------------------------------------------------------------------------

TileArgs<In> tile_args(const Launch& launch, const Geometry& g) {
  const Fields& f = launch.fields();
  const int last = f.shape.rank - 1;
  const Shape parameters = parameter_shape(f);
  auto args = launch.args<TileArgs<In>>();
  args.tiles = cuda::Lines(g.segments);
  if (g.lines.rank > 0) {
    args.input_pitch = g.lines.axes[0].stride[kInput];
    args.output_pitch = g.lines.axes[0].stride[kOutput];
  }
  args.across = divider(parameters[last]);
  args.down = divider(parameters[last - 1]);
  args.width = divider(g.length / kVector);
  args.last_width = g.tail.pieces > 1 ? divider(g.tail.size / kVector) : args.width;
  args.rows = static_cast<std::uint32_t>(g.line_count);
  args.last_rows =
      g.line_tail.pieces > 1 ? static_cast<std::uint32_t>(g.line_tail.size) : args.rows;
  return args;
}

template <Codes kCodes>
Status launch_tiles(const Launch& launch) {
  const Fields& f = launch.fields();
  if (f.scope.kind == ScopeKind::Group) {
    if (f.scope.axis != f.shape.rank - 1) return launch_column_groups<kCodes>(launch);
    return vectors_of(outline(f).elements) <= cuda::kWarp ? launch_lanes<kCodes>(launch)
                                                          : launch_rows<kCodes>(launch, 1);
  }
  const Geometry g = geometry_of(f, launch.operands);
  if (g.count == 0) return Status::success();
  if (!aligned_segments<kCodes>(launch, g) ||
      !aligned(launch.operands, g.lines, kWordBytes<In, kCodes>))
    return launch_lines<kCodes>(launch, g);
  // Few tiles have a multiprocessor each: little work for each thread.
  const int64_t vectors = g.line_count * (g.length / kVector);
  const int per_thread = g.count <= launch.multiprocessors ? 1 : kTileVectors;
  const int64_t warps = ceil_div(vectors, int64_t{per_thread} * cuda::kWarp);
  const auto threads = static_cast<unsigned>(std::min<int64_t>(warps * cuda::kWarp, kRowThreads));
  return launch.run(quantize_tiles<In, kCodes>, launch.grid(g.count, threads),
                    tile_args(launch, g));
}

}  // namespace
}  // namespace planq::dynamic_range_quantize
