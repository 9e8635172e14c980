// From a run to the kernels of columns.cuh: channels, and groups of rows, side by side.
#pragma once

#include <algorithm>

#include "ops/affine/heuristics_sm90.h"
#include "ops/affine/segments/columns.cuh"
#include "ops/affine/segments/elements_launch.cuh"

namespace planq::affine {

// Threads of a block across columns, a power of two.
inline int column_threads(int64_t columns, int per_thread, int most) {
  return static_cast<int>(std::min<int64_t>(most, power_of_two(ceil_div(columns, per_thread))));
}

template <class In>
struct ColumnShape {
  int64_t rows, columns, chunk_rows;
  std::int32_t chunks;
  Partial<In>* partials;
  ColumnArrays<Compute<In>> parameters;
};

// Chunks of rows that give every multiprocessor `blocks` blocks of `threads`, a warp across
// columns, as far as every thread then has kRowsAhead rows.
template <class In>
int64_t chunks_of(const ColumnShape<In>& shape, int per_thread, int threads, int64_t blocks) {
  const int across = column_threads(shape.columns, per_thread, cuda::kWarp);
  const int64_t tiles = std::max<int64_t>(1, ceil_div(shape.columns, across * per_thread));
  const int64_t down = threads / across * kRowsAhead;
  return std::clamp<int64_t>(blocks / tiles, 1, std::max<int64_t>(1, ceil_div(shape.rows, down)));
}

template <class In>
int64_t chunk_rows_of(const ColumnShape<In>& shape, int64_t chunks) {
  return std::max<int64_t>(1, ceil_div(shape.rows, chunks));
}

template <class In>
ColumnShape<In> book_columns(const SegmentedTensor& tensor, std::int32_t multiprocessors,
                             Scratch& scratch) {
  using C = Compute<In>;
  const Outline o = outline(tensor);
  ColumnShape<In> shape{};
  shape.rows = o.outer;
  shape.columns = o.segments * o.inner;
  shape.chunk_rows = chunk_rows_of(shape, chunks_of(shape, kPerVector<In>, kColumnRangeThreads,
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
template <class In>
std::size_t largest_columns(const SegmentedTensor& tensor, std::int32_t multiprocessors) {
  using C = Compute<In>;
  const Outline o = outline(tensor);
  const int64_t columns = o.segments * o.inner;
  const int64_t wide =
      int64_t{column_threads(columns, kPerVector<In>, cuda::kWarp)} * kPerVector<In>;
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

// Whether threads take whole vectors of columns; one of float64 would be two of them.
template <Codes kCodes, class In>
bool aligned_columns(const Launch<In>& launch, const IndexSpace& lines, int64_t columns) {
  return !kIsWide<In> && columns % kPerVector<In> == 0 &&
         aligned<In>(launch.operands, lines, kWordBytes<In, kCodes>);
}

// A kernel over tiles of columns and chunks of rows; sets the arguments that say so.
template <class In>
cuda::Grid column_grid(const Launch<In>& launch, ColumnArgs<In>& args, int per_thread, int threads,
                       int64_t chunk_rows, bool dependent) {
  const int across = column_threads(args.columns, per_thread, cuda::kWarp);
  args.tiles = static_cast<std::int32_t>(ceil_div(args.columns, across * per_thread));
  args.chunk_rows = chunk_rows;
  return launch.grid(args.tiles * ceil_div(args.rows, chunk_rows), dim3(across, threads / across),
                     dependent);
}

// --- Channels ----------------------------------------------------------------------------------

template <class In, Codes kCodes>
auto channel_kernel(const math::AffineSpec<Compute<In>>& spec, bool vector, bool equal)
    -> void (*)(ColumnArgs<In>) {
  if constexpr (kHasRegular<In, kCodes>)
    if (vector && equal && variant_of(spec) == Variant::Specialized)
      return by_mode<kCodes>(
          spec, [](auto asymmetric) { return specialized_channels<In, kCodes, asymmetric.value>; });
  if constexpr (!kIsWide<In>)
    if (vector) return generic_channels<In, kCodes, true>;
  return generic_channels<In, kCodes, false>;
}

// Ranges of chunks of rows, and the parameters that follow from them.
template <class In>
Status launch_column_parameters(const Launch<In>& launch, const ColumnShape<In>& shape, bool vector,
                                ColumnArgs<In>& args) {
  const cuda::Grid ranges = column_grid(launch, args, vector ? kPerVector<In> : 1,
                                        kColumnRangeThreads, shape.chunk_rows, false);
  const ParameterKernels<In> kernels = parameter_kernels<In>();
  PLANQ_TRY(launch.run(!vector                ? kernels.column_ranges
                       : args.lines.rank <= 1 ? kernels.equal_column_ranges
                                              : kernels.aligned_column_ranges,
                       ranges, args));
  const dim3 finish_threads(cuda::kWarp, kColumnThreads / cuda::kWarp);
  const int64_t channels = args.columns / args.inner;
  return launch.run(kernels.column_finish,
                    launch.grid(ceil_div(channels, cuda::kWarp), finish_threads, ranges.blocks > 0),
                    args);
}

template <Codes kCodes, class In>
Status launch_columns(const Launch<In>& launch) {
  Scratch scratch(launch.workspace);
  const auto shape = book_columns<In>(launch.tensor, launch.multiprocessors, scratch);
  auto args = launch.template args<ColumnArgs<In>>();
  if (!view_rows(launch.tensor, launch.operands, shape.columns, args.lines))
    return launch_elements<kCodes>(launch);
  args.rows = shape.rows;
  args.columns = shape.columns;
  args.inner = std::max<int64_t>(outline(launch.tensor).inner, 1);
  args.chunks = shape.chunks;
  args.partials = shape.partials;
  args.parameters = shape.parameters;
  const int64_t input_bytes = args.rows * args.columns * static_cast<int64_t>(sizeof(In));
  args.keep = input_bytes <= kCachedBytes;
  const bool vector = aligned_columns<kCodes>(launch, args.lines, args.columns);
  PLANQ_TRY(launch_column_parameters(launch, shape, vector, args));
  const int per_thread = vector ? kPerVector<In> : kColumns<In, kCodes, false>;
  // A small matrix: all blocks at once. A large one: two or more after one another.
  const int64_t blocks = int64_t{launch.multiprocessors} * kColumnCodeBlocks * (args.keep ? 1 : 2);
  const int64_t chunks = chunks_of(shape, per_thread, kColumnThreads, blocks);
  const int64_t chunk_rows = std::min(chunk_rows_of(shape, chunks), kMostChunkRows);
  const cuda::Grid codes =
      column_grid(launch, args, per_thread, kColumnThreads, chunk_rows, args.keep);
  const bool equal = args.lines.rank <= 1;
  return launch.run(channel_kernel<In, kCodes>(args.spec, vector, equal), codes, args);
}

template <class In, Codes kCodes>
Status preload_columns(const math::AffineSpec<Compute<In>>& spec) {
  const ParameterKernels<In> kernels = parameter_kernels<In>();
  PLANQ_TRY(preload_all(kernels.column_ranges, kernels.aligned_column_ranges,
                        kernels.equal_column_ranges, kernels.column_finish,
                        channel_kernel<In, kCodes>(spec, true, true),
                        channel_kernel<In, kCodes>(spec, true, false),
                        channel_kernel<In, kCodes>(spec, false, false)));
  return preload_elements<In, kCodes>();
}

// --- Groups of rows ----------------------------------------------------------------------------

template <class In, Codes kCodes>
auto column_group_kernel([[maybe_unused]] bool vector) -> void (*)(ColumnArgs<In>) {
  if constexpr (!kIsWide<In>)
    if (vector) return column_groups<In, kCodes, true>;
  return column_groups<In, kCodes, false>;
}

template <class In>
ColumnArgs<In> column_group_args(const Launch<In>& launch) {
  SegmentedTensor column = launch.tensor;
  const int last = column.shape.rank - 1;
  column.shape[last] = 1;  // the segments of one column, beside which the others lie
  const Geometry g = geometry_of(column, launch.operands);
  auto args = launch.template args<ColumnArgs<In>>();
  args.lines = g.starts;
  args.rows = g.line_count;
  args.groups = g.line_tail.pieces;
  args.group_divisor = g.line_tail.divisor;
  args.tail = g.line_tail.size;
  args.columns = launch.tensor.shape[last];
  if (g.lines.rank > 0) {
    args.input_step = g.lines.axes[0].stride[kInput];
    args.output_step = g.lines.axes[0].stride[kOutput];
  }
  return args;
}

template <Codes kCodes, class In>
Status launch_column_groups(const Launch<In>& launch) {
  auto args = column_group_args(launch);
  const bool vector = aligned_columns<kCodes>(launch, args.lines, args.columns) &&
                      args.input_step % kPerVector<In> == 0 &&
                      args.output_step % kWordBytes<In, kCodes> == 0;
  const int per_thread = vector ? kPerVector<In> : kColumns<In, kCodes, false>;
  const int across = column_threads(args.columns, per_thread, kMaxTileColumns / kPerVector<In>);
  args.tiles = static_cast<std::int32_t>(ceil_div(args.columns, across * per_thread));
  const cuda::Grid grid =
      launch.grid(args.lines.size() * args.tiles, dim3(across, kColumnThreads / across));
  return launch.run(column_group_kernel<In, kCodes>(vector), grid, args);
}

template <class In, Codes kCodes>
Status preload_column_groups() {
  return preload_all(column_group_kernel<In, kCodes>(false), column_group_kernel<In, kCodes>(true));
}

}  // namespace planq::affine
