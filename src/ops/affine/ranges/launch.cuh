// From a plan for ranges to kernels: which method, how many blocks share a result, and which kernel
// fits the operands. Definitions of what cuda.h declares.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

#include "ops/affine/ranges/kernels.cuh"

namespace planq::cuda {
namespace ranges {

using std::int64_t;

// A launch of one box; `first` says that no kernel of this call went before.
template <class In>
struct Box {
  const RangePlan& plan;
  const RangeOperands& operands;
  const RangeSegments& segments;
  RangeKeys<In> keys;
  int64_t pieces;
  Bound& bound;
  bool& first;

  // Launches of as many blocks as a grid can have.
  template <class Args>
  Status run(void (*kernel)(Args), int64_t blocks, dim3 threads, Args args) const {
    for (args.first_block = 0; args.first_block < blocks; args.first_block += kMaxIndex) {
      const int64_t count = std::min(blocks - args.first_block, kMaxIndex);
      PLANQ_TRY(launch(kernel, {count, threads, 1, !first && has_dependent_launches(plan.arch)},
                       args, bound));
      first = false;
    }
    return Status::success();
  }

  const In* input() const {
    return static_cast<const In*>(operands.input.data) + segments.origin.at[Segments::kElements];
  }
  RangeResults<In> results() const {
    const auto end = [&](RangeEnd which) {
      auto* const data = static_cast<Compute<In>*>(operands.ends[which].data);
      return data == nullptr ? nullptr : data + segments.result_origin.at[which];
    };
    return {end(kLow),
            end(kHigh),
            end(kPreviousLow),
            end(kPreviousHigh),
            segments.results,
            plan.problem.symmetric(),
            plan.problem.saturate()};
  }
};

// Whether everything that begins at offsets of the space begins with a vector.
template <class In>
bool is_aligned(const IndexSpace& space) {
  for (int i = 0; i < space.rank; ++i)
    if (space.axes[i].stride[Segments::kElements] % kPerVector<In> != 0) return false;
  return true;
}
template <class In>
bool is_aligned(const In* input) {
  return reinterpret_cast<std::uintptr_t>(input) % kVectorBytes == 0;
}

template <class In>
Status combine(const Box<In>& box, int64_t chunks, int64_t chunk_stride, int64_t inner) {
  const int64_t count = box.segments.count;
  CombineArgs<In> args{box.results(), box.keys, count, chunks, chunk_stride, inner, 0};
  // Few results of many keys: more threads for each, as long as they read whole sectors.
  int64_t across = std::min<int64_t>(kWarp, power_of_two(count));
  const int64_t narrowest = inner == 1 ? 8 : 1;
  while (across > narrowest && chunks * inner * across > 8 * kRangeThreads) across /= 2;
  return box.run(combine_ranges<In>, ceil_div(count, across),
                 dim3(across, static_cast<unsigned>(kRangeThreads / across)), args);
}

template <class In>
Status launch_segments(const Box<In>& box) {
  const Segments& s = box.segments;
  SegmentRangeArgs<In> args{};
  args.input = box.input();
  args.results = box.results();
  args.keys = box.keys;
  args.starts = s.starts;
  args.lines = s.lines;
  args.count = s.count;
  args.line_count = s.line_count;
  args.length = s.length;
  args.parts = box.pieces;
  const bool aligned = is_aligned(args.input) && is_aligned<In>(s.starts) &&
                       is_aligned<In>(s.lines) && s.length % kPerVector<In> == 0;
  const int64_t vectors = s.length / kPerVector<In>, all = s.line_count * vectors;
  if (s.line_count == 1 && vectors <= kWarp && args.parts == 1) {
    // Edges have a lane each.
    const int64_t lanes =
        std::max<int64_t>(power_of_two(vectors), aligned ? 1 : 2 * kPerVector<In>);
    args.width_log2 = std::countr_zero(static_cast<std::uint64_t>(lanes));
    const int64_t per_block = kRangeSets * kRangeThreads / lanes;
    return box.run(aligned ? subwarp_ranges<In, true> : subwarp_ranges<In, false>,
                   ceil_div(s.count, per_block), kRangeThreads, args);
  }
  // A warp for each segment: where there are so many of them that blocks would only have to agree.
  const bool warps =
      args.parts == 1 && s.count >= int64_t{box.plan.multiprocessors} * 16 && all <= kWarp * 32;
  const int64_t threads = warps ? kWarp : kRangeThreads;
  share_lines<In>(args, threads, aligned);
  const auto kernel = warps
                          ? (aligned ? team_ranges<In, kWarp, true> : team_ranges<In, kWarp, false>)
                          : (aligned ? team_ranges<In, kRangeThreads, true>
                                     : team_ranges<In, kRangeThreads, false>);
  const int64_t teams = s.count * args.parts;
  PLANQ_TRY(box.run(kernel, ceil_div(teams, kRangeThreads / threads), kRangeThreads, args));
  return args.parts == 1 ? Status::success() : combine(box, 1, 0, args.parts);
}

template <class In>
Status launch_columns(const Box<In>& box, const Columns& columns) {
  ColumnRangeArgs<In> args{};
  args.input = box.input();
  args.results = box.results();
  args.keys = box.keys;
  args.batches = columns.batches;
  args.rows = columns.rows;
  args.row_count = columns.row_count;
  args.columns = columns.count;
  args.keys_stride = columns.batch_count * columns.count;
  const bool vector = is_aligned(args.input) && is_aligned<In>(columns.batches) &&
                      is_aligned<In>(columns.rows) && columns.count % kPerVector<In> == 0;
  const ColumnTiles tiles(columns, vector ? kPerVector<In> : 1);
  args.tiles = tiles.count;
  args.chunk_rows = std::max<int64_t>(1, ceil_div(columns.row_count, box.pieces));
  args.chunks = std::max<int64_t>(1, ceil_div(columns.row_count, args.chunk_rows));
  PLANQ_TRY(box.run(vector ? column_ranges<In, true> : column_ranges<In, false>,
                    columns.batch_count * args.tiles * args.chunks,
                    dim3(tiles.across, kRangeThreads / tiles.across), args));
  if (args.keys.high == nullptr) return Status::success();
  return combine(box, args.chunks, args.keys_stride, columns.inner);
}

}  // namespace ranges

template <class In>
Status preload_ranges() {
  using namespace ranges;
  PLANQ_TRY(preload(subwarp_ranges<In, false>));
  PLANQ_TRY(preload(subwarp_ranges<In, true>));
  PLANQ_TRY(preload(team_ranges<In, kWarp, false>));
  PLANQ_TRY(preload(team_ranges<In, kWarp, true>));
  PLANQ_TRY(preload(team_ranges<In, kRangeThreads, false>));
  PLANQ_TRY(preload(team_ranges<In, kRangeThreads, true>));
  PLANQ_TRY(preload(column_ranges<In, false>));
  PLANQ_TRY(preload(column_ranges<In, true>));
  return preload(combine_ranges<In>);
}

template <class In>
Status launch_ranges(const RangePlan& plan, const RangeOperands& operands,
                     const RangePartials& partials, Bound& bound) {
  using namespace ranges;
  bool first = true;
  Status status = Status::success();
  for_each_box(plan.problem, operands, [&](const RangeSegments& segments, int number) {
    if (!status.ok()) return;
    const RangeKeys<In> keys{static_cast<KeyOf<In>*>(partials.low[number]),
                             static_cast<KeyOf<In>*>(partials.high[number])};
    const Box<In> box{plan, operands, segments, keys, plan.pieces[number], bound, first};
    Columns columns;
    const bool beside = plan.method == RangeMethod::Columns && columns_of(segments, columns) &&
                        columns.inner == plan.inner;
    status = beside ? launch_columns(box, columns) : launch_segments(box);
  });
  return status;
}

}  // namespace planq::cuda

// What a file of one input type instantiates.
#define PLANQ_RANGES(In)                                                                          \
  template ::planq::Status planq::cuda::preload_ranges<In>();                                     \
  template ::planq::Status planq::cuda::launch_ranges<In>(const RangePlan&, const RangeOperands&, \
                                                          const RangePartials&, Bound&)
