// Ranges of segments on CUDA, for any operator; see ranges.h. A plan is made once, its partial
// results are booked in the workspace, and a launch is one or two kernels for each box of segments:
//
//   prepare     plan = plan_ranges(problem, device); preload_ranges<In>();
//   workspace   book_ranges(plan, scratch);
//   launch      launch_ranges<In>(plan, operands, book_ranges(plan, scratch), bound);
//
// The templates are instantiated in ranges_f16.cu and its neighbours.
#pragma once

#include <algorithm>
#include <cstdint>

#include "core/device.h"
#include "core/scratch.h"
#include "core/status.h"
#include "cuda/launch.cuh"
#include "ops/affine/heuristics_sm90.h"
#include "ops/affine/ranges/ranges.h"

namespace planq::cuda {

enum class RangeMethod : std::uint8_t {
  Columns,  // threads own neighbouring columns; blocks may share them
  Split,    // blocks share a segment
  Rows,     // a segment has some lanes, a warp or a block: takes everything, without workspace
};

struct RangePlan {
  RangeProblem problem;
  RangeMethod method = RangeMethod::Rows;
  std::int32_t multiprocessors = 0, arch = 0;
  std::int64_t inner = 1;  // neighbouring columns of a segment
  // Blocks that share the segments of a box, or its columns.
  std::array<std::int64_t, kMaxBoxes> pieces{1, 1, 1, 1};
};

// Keys of pieces, where several make a result; nullptr where not.
struct RangePartials {
  std::array<void*, kMaxBoxes> low{}, high{};
};

template <class In>
Status preload_ranges();

// Under SATURATE the ends are those of the finite elements. Under PROPAGATE a NaN makes both ends
// NaN and an infinity is an end itself, so that a segment holds neither exactly if its ends are
// finite. The kernel after this one may be launched as a dependent one.
template <class In>
Status launch_ranges(const RangePlan& plan, const RangeOperands& operands,
                     const RangePartials& partials, Bound& bound);

// --- Plans -------------------------------------------------------------------------------------

inline constexpr int kRangeThreads = 256;
// Of a multiprocessor, at least.
inline constexpr int kRangeBlocks = 4, kColumnBlocks = 3;
inline constexpr int kRangeBatch = 4;  // loads of a thread under way

namespace ranges {

// The columns of one block: `across` threads that own `per_thread` columns each.
struct ColumnTiles {
  int across;
  std::int64_t count;

  ColumnTiles(const Columns& columns, int per_thread)
      : across(static_cast<int>(
            std::min<std::int64_t>(32, power_of_two(ceil_div(columns.count, per_thread))))),
        count(ceil_div(columns.count, across * per_thread)) {}
};

// How many blocks should share each of `count` tasks that take one block `batches` batches of
// loads: as few as leave less than a tenth of a GPU with room for `slots` blocks idle, in at most
// four rounds. Up to four batches take no longer than the kernel that would combine the pieces.
inline std::int64_t pieces_of(std::int64_t count, std::int64_t slots, std::int64_t batches) {
  std::int64_t best = 1;
  double best_share = 0;
  for (std::int64_t rounds = 1; batches > 4 && rounds <= 4 && best_share < 0.9; ++rounds) {
    const std::int64_t pieces = std::clamp<std::int64_t>(slots * rounds / count, 1, batches);
    const std::int64_t blocks = count * pieces;
    const double share =
        static_cast<double>(blocks) / static_cast<double>(ceil_div(blocks, slots) * slots);
    if (share <= best_share) continue;
    best = pieces;
    best_share = share;
  }
  return best;
}

inline int per_vector(const RangeProblem& problem) {
  return 16 / storage_bytes(problem.input_dtype);
}

inline std::int64_t segment_pieces(const RangeProblem& problem, const Segments& box,
                                   std::int64_t slots) {
  const std::int64_t vectors = ceil_div(box.elements(), per_vector(problem));
  return pieces_of(box.count, slots, ceil_div(vectors, kRangeThreads * kRangeBatch));
}
inline std::int64_t column_pieces(const RangeProblem& problem, const Columns& columns,
                                  std::int64_t slots) {
  const ColumnTiles tiles(columns, per_vector(problem));
  const std::int64_t down = kRangeThreads / tiles.across;
  return pieces_of(columns.batch_count * tiles.count, slots,
                   ceil_div(columns.row_count, down * kRangeBatch));
}

}  // namespace ranges

// Whether segments are better read side by side; `inner` becomes the columns of a segment.
inline bool reads_columns(const RangeProblem& problem, std::int64_t& inner) {
  bool result = false;
  for_each_box(problem, contiguous_operands(problem.shape), [&](const Segments& box, int number) {
    Columns columns;
    if (number != 0 || !columns_of(box, columns)) return;
    inner = columns.inner;
    result = inner == 1 || (inner < affine::kShortSpan && box.line_count > 1);
  });
  return result;
}

inline RangePlan plan_ranges(const RangeProblem& problem, const Device& device,
                             RangeMethod method) {
  RangePlan plan{problem, method, device.multiprocessors, device.arch, 1, {1, 1, 1, 1}};
  if (method == RangeMethod::Rows) return plan;
  if (method == RangeMethod::Columns) reads_columns(problem, plan.inner);
  const std::int64_t multiprocessors = device.multiprocessors;
  for_each_box(problem, contiguous_operands(problem.shape), [&](const Segments& box, int number) {
    Columns columns;
    if (method == RangeMethod::Split)
      plan.pieces[number] = ranges::segment_pieces(problem, box, multiprocessors * kRangeBlocks);
    else if (columns_of(box, columns))
      plan.pieces[number] =
          ranges::column_pieces(problem, columns, multiprocessors * kColumnBlocks);
  });
  return plan;
}

inline bool shares_segments(const RangePlan& plan) {
  return *std::max_element(plan.pieces.begin(), plan.pieces.end()) > 1;
}

// With the method that reads at the best rate.
inline RangePlan plan_ranges(const RangeProblem& problem, const Device& device) {
  std::int64_t inner = 1;
  if (reads_columns(problem, inner)) return plan_ranges(problem, device, RangeMethod::Columns);
  const RangePlan split = plan_ranges(problem, device, RangeMethod::Split);
  return shares_segments(split) ? split : plan_ranges(problem, device, RangeMethod::Rows);
}

inline RangePartials book_ranges(const RangePlan& plan, Scratch& scratch) {
  RangePartials partials;
  const bool wide = plan.problem.input_dtype == DType::Float64;
  const auto take = [&](std::int64_t count) -> void* {
    const auto keys = static_cast<std::size_t>(count);
    if (wide) return scratch.take<std::int64_t>(keys);
    return scratch.take<std::int32_t>(keys);
  };
  for_each_box(plan.problem, contiguous_operands(plan.problem.shape),
               [&](const Segments& box, int number) {
                 if (plan.pieces[number] == 1 && plan.inner == 1) return;
                 const std::int64_t count = plan.pieces[number] * box.count * plan.inner;
                 partials.high[number] = take(count);
                 if (!plan.problem.symmetric()) partials.low[number] = take(count);
               });
  return partials;
}

// What is enough for book_ranges with any method, of any problem whose extents are at most these.
// Pieces are made only where a GPU has more room than there are tasks, of at most four rounds.
inline std::size_t largest_ranges(const RangeProblem& problem, const Device& device) {
  const std::int64_t rounds = 4 * std::int64_t{device.multiprocessors};
  const std::int64_t widest = 32 * ranges::per_vector(problem);
  const int ends = problem.symmetric() ? 1 : 2;
  Scratch scratch;
  for_each_box(problem, contiguous_operands(problem.shape), [&](const Segments& box, int) {
    std::int64_t keys = rounds * std::max<std::int64_t>(kRangeBlocks, kColumnBlocks * widest);
    keys = std::min(keys, box.count * box.elements());
    // Columns that share a segment are combined whether or not they come in pieces.
    Columns columns;
    if (columns_of(box, columns)) keys = std::max(keys, columns.batch_count * columns.count);
    for (int end = 0; end < ends; ++end) scratch.take<std::int64_t>(static_cast<std::size_t>(keys));
  });
  return scratch.bytes();
}

}  // namespace planq::cuda
