// Segments on the host: measured, and then used while they are in a core's cache. What they are
// used for is the caller's: ranges may be stored, elements encoded. Drivers go over a box of
// segments (core/segments.h) in batches of lines that are segments, segment by segment where each
// has several lines, in tiles of columns, or in batches of groups that cut lines; where segments
// are few, all threads share each. What follows does not depend on who measured what: ranges are
// exact maxima.
//
// A Use says
//   Key, kOperands         what ranges are found with (keys.h); operand 0 is what is measured
//   kReadsAgain            whether elements are needed again when their range is known
//   Batch                  what is to be known of segments then
//   measured(ranges, count, at, stride, batch)
//                          from the ranges of `count` segments to a Batch, and to the parameters
//                          that are at `at` and `stride` apart
// and, if it reads again,
//   lines(lines, of, ahead, batch)                the elements of lines
//   columns(lines, ahead, batch)                  of lines whose column j is of segment j
//   groups(lines, size, ahead, batch)             of one line, whose j-th `size` are of segment j
//   done()                                        a thread has used what it had to
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "core/segments.h"
#include "host/thread_pool.h"
#include "ops/affine/ranges/keys.h"

namespace planq::host {

// The ranges of some segments, as keys; `special` says that a segment has a NaN or an infinity
// which its keys leave out.
template <class K>
struct KeyRanges {
  K *low, *high;
  bool* special;

  KeyRanges from(std::int64_t segment) const {
    return {low + segment, high + segment, special + segment};
  }
  void clear(std::int64_t count, const Keys<K>& none) const {
    std::fill_n(low, count, none.low);
    std::fill_n(high, count, none.high);
    std::fill_n(special, count, false);
  }
  void include(std::int64_t segment, const KeyRanges& others, std::int64_t other) const {
    low[segment] = std::min(low[segment], others.low[other]);
    high[segment] = std::max(high[segment], others.high[other]);
    special[segment] |= others.special[other];
  }
};

// Aligned, so that no vector lies in two cache lines.
template <class K, int kCount>
struct KeyArrays {
  alignas(64) K low[kCount], high[kCount];
  bool special[kCount];

  KeyRanges<K> ranges() { return {low, high, special}; }
};

// Segments that are measured and used together: a batch of lines, or a tile of columns.
template <class K>
inline constexpr int kMostSegments = sizeof(K) == 8 ? 256 : 512;

// What ranges are measured with. `again`: with the loops for finite elements once more, where the
// others met a NaN or an infinity.
template <class K>
struct RangeMeasure {
  RangeLoops<K> loops, finite;
  bool signs = false, again = false;
  K infinity = 0;

  Keys<K> none() const { return no_keys<K>(signs); }
  bool is_special(K low, K high) const {
    return high >= infinity || (signs && low <= static_cast<K>(~infinity));
  }
};

// `count` lines of `length` elements; in each operand the first begins at `at`, and they are
// `stride` apart.
template <int kOperands>
struct IndexSpace32Of {
  OffsetsOf<kOperands> at;
  std::int64_t length = 0, count = 1;
  std::array<std::int64_t, kOperands> stride{};
};

// Line i is of segment first + i * step. Step 0: all lines are of one.
struct SegmentOfLine {
  int first = 0, step = 0;
};

// Elements that are worth waking a thread for.
inline constexpr std::int64_t kSegmentGrain = 1 << 16;
// Input that is measured and then used, small enough to stay in a first-level cache between: a
// batch of short lines.
inline constexpr std::int64_t kBatchBytes = 8 << 10;
// Lines from this size on are used in steps, each followed by measuring as much of the next line,
// so that memory is read at an even rate.
inline constexpr std::int64_t kLongLineBytes = 8 << 10, kStepBytes = 8 << 10;
// The most groups that are taken together; even, so that they begin on a byte.
inline constexpr std::int64_t kGroupBatch = 64;
// Long lines are dealt out by blocks of as many elements.
inline constexpr std::int64_t kBlockElements = 1 << 15;
// How far in front of a pass over memory its input is requested, and how much further than the next
// batch or line; of columns, in rows.
inline constexpr std::int64_t kAheadBytes = 8 << 10, kFurtherBytes = 6 << 10, kAheadRows = 4;
// Rows of a tile of columns, and tiles that a second-level cache holds.
inline constexpr std::int64_t kTileRowBytes = 1 << 10, kTileBytes = 256 << 10;
// Threads that share a segment measure so many pieces of it at most.
inline constexpr std::int64_t kMaxPieces = 256;
// Partial ranges of columns: pieces of at least so many, which are whole cache lines of keys and
// whole bytes of 4-bit codes.
inline constexpr std::int64_t kFewestColumns = 64;
template <class K>
inline constexpr std::int64_t kPartials = 4 * kMostSegments<K>;
// Several columns that share a segment are side by side up to so many; more are lines.
inline constexpr std::int64_t kShortLine = 64;

template <class Use>
class SegmentDriver {
 public:
  using K = typename Use::Key;
  using Batch = typename Use::Batch;
  static constexpr int kOperands = Use::kOperands;
  static constexpr std::int64_t kMost = kMostSegments<K>;
  static_assert(kGroupBatch <= kMost && kMaxPieces <= kMost);

  using Box = SegmentsOf<kOperands>;
  using Columns = ColumnsOf<kOperands>;
  using IndexSpace32 = IndexSpace32Of<kOperands>;
  using Offsets = OffsetsOf<kOperands>;
  using Axis = AxisOf<kOperands>;
  using Strides = std::array<std::int64_t, kOperands>;

  SegmentDriver(const Use& use, const RangeMeasure<K>& measure, const void* input, int threads)
      : use_(use),
        measure_(measure),
        input_(static_cast<const K*>(input)),
        threads_(std::max(threads, 1)) {}

  void run(const Box& box) const {
    if (box.elements() == 0) return empty_segments(box);
    Columns columns;
    if (columns_of(box, columns) && takes_columns(columns)) return tiles(box, columns);
    if (is_shared(box)) return shared_segments(box);
    box.line_count == 1 ? single_lines(box) : whole_segments(box);
  }

  // Groups of `size` elements that cut the lines of a box, whose parameters are `stride` apart.
  // Those that follow each other are taken together, line by line, as far as a second-level cache
  // holds them.
  void run_groups(const Box& box, std::int64_t size, const Strides& stride) const {
    const std::int64_t bytes = box.line_count * size * kBytes;
    const std::int64_t batch = std::clamp<std::int64_t>(kTileBytes / bytes, 2, kGroupBatch) & ~1;
    const std::int64_t batches = groups_of(groups_of(box.length, size), batch);
    const std::int64_t longest = std::min(size * batch, box.length);
    const std::int64_t grain = grain_of(longest * box.line_count);
    parallel_for(threads_, box.count * batches, grain, [&](std::int64_t first, std::int64_t last) {
      for (std::int64_t task = first; task < last; ++task) {
        const std::int64_t group = task % batches * batch;
        IndexSpace32 lines = {box.origin + box.starts.offsets(task / batches), 0, 1, stride};
        for (int i = 0; i < kOperands; ++i)
          lines.at.at[i] += is_parameter(box, i) ? group * stride[i] : group * size;
        lines.length = std::min(longest, box.length - group * size);
        group_batch(box.lines, lines, size);
      }
      use_.done();
    });
  }

 private:
  static constexpr std::int64_t kBytes = sizeof(K);

  static std::int64_t grain_of(std::int64_t elements) {
    return std::max<std::int64_t>(1, kSegmentGrain / std::max<std::int64_t>(elements, 1));
  }
  static bool is_parameter(const Box& box, int operand) {
    return (box.tensors >> operand & 1u) == 0;
  }
  static Strides strides_of(const Axis& axis) { return axis.stride; }
  static void advance(Offsets& at, const Box& box, std::int64_t elements) {
    for (int i = 0; i < kOperands; ++i)
      if (!is_parameter(box, i)) at.at[i] += elements;
  }

  // Elements that are used again are those of single segments.
  static bool takes_columns(const Columns& columns) {
    if (columns.inner == 1) return true;
    return !Use::kReadsAgain && columns.row_count > 1 && columns.inner < kShortLine;
  }
  // Long segments, and so few that whole ones would leave more than a quarter of the threads idle.
  bool is_shared(const Box& box) const {
    const std::int64_t rounds = groups_of(box.count, threads_);
    return threads_ > 1 && box.elements() >= 4 * kSegmentGrain &&
           3 * rounds * threads_ > 4 * box.count;
  }

  // ---- measuring ---------------------------------------------------------------------------

  // Includes lines in the ranges of their segments.
  void measure_lines(const IndexSpace32& lines, SegmentOfLine of, std::int64_t ahead,
                     const KeyRanges<K>& ranges) const {
    const K* x = input_ + lines.at.at[0];
    const KeyLines shape = {lines.length, lines.count, lines.stride[0]};
    const KeyRanges<K> own = ranges.from(of.first);
    if (!measure_.again) return measure_.loops.lines(x, shape, of.step, ahead, own.low, own.high);
    measure_again(
        own, of.step == 0 ? 1 : lines.count,
        [&](const KeyRanges<K>& all) {
          measure_.loops.lines(x, shape, of.step, ahead, all.low, all.high);
        },
        [&](std::int64_t i) {
          const KeyLines part = {shape.length, of.step == 0 ? shape.count : 1, shape.stride};
          measure_.finite.lines(x + i * shape.stride, part, 0, 0, own.low + i, own.high + i);
        });
  }

  // Includes column j of all lines in range j.
  void measure_columns(const IndexSpace32& lines, const KeyRanges<K>& ranges) const {
    const K* x = input_ + lines.at.at[0];
    const KeyLines shape = {lines.length, lines.count, lines.stride[0]};
    const std::int64_t ahead = kAheadRows * shape.stride * kBytes;
    if (!measure_.again) return measure_.loops.columns(x, shape, ahead, ranges.low, ranges.high);
    measure_again(
        ranges, shape.length,
        [&](const KeyRanges<K>& all) {
          measure_.loops.columns(x, shape, ahead, all.low, all.high);
        },
        [&](std::int64_t j) {
          const KeyLines column = {1, shape.count, shape.stride};
          measure_.finite.columns(x + j, column, 0, ranges.low + j, ranges.high + j);
        });
  }

  // All elements, and the finite ones of those segments where that is not the same.
  template <class All, class Finite>
  void measure_again(const KeyRanges<K>& ranges, std::int64_t count, const All& measure_all,
                     const Finite& measure_finite) const {
    KeyArrays<K, kMost> arrays;
    const KeyRanges<K> all = arrays.ranges();
    all.clear(count, measure_.none());
    measure_all(all);
    for (std::int64_t i = 0; i < count; ++i) {
      if (!measure_.is_special(all.low[i], all.high[i])) {
        ranges.include(i, all, i);
      } else {
        ranges.special[i] = true;
        measure_finite(i);
      }
    }
  }

  void empty_segments(const Box& box) const {
    KeyArrays<K, 1> arrays;
    arrays.ranges().clear(1, measure_.none());
    Batch batch;
    for (std::int64_t i = 0; i < box.count; ++i)
      use_.measured(arrays.ranges(), 1, box.origin + box.starts.offsets(i), Strides{}, batch);
  }

  // ---- lines that are segments -------------------------------------------------------------

  void single_lines(const Box& box) const {
    const std::int64_t bytes = box.length * kBytes;
    const std::int64_t batch =
        Use::kReadsAgain ? std::clamp<std::int64_t>(kBatchBytes / bytes, 1, kMost) : kMost;
    const auto piece = [&](const Offsets& from, std::int64_t count, const Axis& axis) {
      IndexSpace32 lines = {box.origin + from, box.length, count, axis.stride};
      if constexpr (Use::kReadsAgain) {
        if (bytes >= kLongLineBytes) return long_lines(box, lines);
      }
      for (std::int64_t i = 0; i < count; i += batch) {
        lines.count = std::min(batch, count - i);
        line_batch(lines);
        lines.at = moved(lines.at, axis, lines.count);
      }
    };
    parallel_for(threads_, box.count, grain_of(box.length),
                 [&](std::int64_t first, std::int64_t last) {
                   for_each_piece(box.starts, first, last, piece);
                   use_.done();
                 });
  }

  void line_batch(const IndexSpace32& lines) const {
    KeyArrays<K, kMost> arrays;
    Batch batch;
    arrays.ranges().clear(lines.count, measure_.none());
    measure_lines(lines, {0, 1}, Use::kReadsAgain ? 0 : kAheadBytes, arrays.ranges());
    use_.measured(arrays.ranges(), lines.count, lines.at, lines.stride, batch);
    if constexpr (Use::kReadsAgain)
      use_.lines(lines, {0, 1}, lines.count * lines.stride[0] * kBytes + kFurtherBytes, batch);
  }

  void long_lines(const Box& box, const IndexSpace32& lines) const {
    KeyArrays<K, 1> arrays;
    Batch batch;
    const KeyRanges<K> range = arrays.ranges();
    range.clear(1, measure_.none());
    IndexSpace32 line = {lines.at, lines.length, 1, {}};
    measure_lines(line, {}, kAheadBytes, range);
    for (std::int64_t i = 0; i < lines.count; ++i) {
      use_.measured(range, 1, line.at, Strides{}, batch);
      range.clear(1, measure_.none());
      long_line(box, line, lines.stride[0], i + 1 < lines.count, batch, range);
      for (int k = 0; k < kOperands; ++k) line.at.at[k] += lines.stride[k];
    }
  }

  // Uses a line and, if there are more, measures the one that is `next` elements further.
  void long_line(const Box& box, IndexSpace32 line, std::int64_t next, bool more,
                 const Batch& batch, const KeyRanges<K>& range) const {
    constexpr std::int64_t kLongest = kStepBytes / kBytes;
    const std::int64_t length = line.length;
    for (std::int64_t i = 0; i < length; i += kLongest) {
      line.length = std::min(kLongest, length - i);
      use_.lines(line, {}, next * kBytes + kFurtherBytes, batch);
      if (more) {
        IndexSpace32 beside = line;
        beside.at.at[0] += next;
        measure_lines(beside, {}, 0, range);
      }
      advance(line.at, box, line.length);
    }
  }

  // ---- segments of several lines, or of one line for all threads ---------------------------

  // A unit is a line, or a block of a long line.
  static std::int64_t blocks(const Box& box) { return groups_of(box.length, kBlockElements); }

  // Calls visit(lines) for the units [first, last) of the segment that begins at `start`.
  template <class Visit>
  void for_units(const Box& box, const Offsets& start, std::int64_t first, std::int64_t last,
                 const Visit& visit) const {
    const std::int64_t per_line = blocks(box);
    if (per_line == 1) {
      for_each_piece(box.lines, first, last,
                     [&](const Offsets& at, std::int64_t count, const Axis& axis) {
                       visit(IndexSpace32{start + at, box.length, count, axis.stride});
                     });
      return;
    }
    for (std::int64_t unit = first; unit < last; ++unit) {
      const std::int64_t begin = unit % per_line * kBlockElements;
      IndexSpace32 block = {start + box.lines.offsets(unit / per_line), 0, 1, {}};
      block.length = std::min(kBlockElements, box.length - begin);
      advance(block.at, box, begin);
      visit(block);
    }
  }

  // Into the first of the ranges.
  void measure_units(const Box& box, const Offsets& start, std::int64_t first, std::int64_t last,
                     const KeyRanges<K>& range) const {
    range.clear(1, measure_.none());
    for_units(box, start, first, last,
              [&](const IndexSpace32& lines) { measure_lines(lines, {}, kAheadBytes, range); });
  }

  void use_units(const Box& box, const Offsets& start, std::int64_t first, std::int64_t last,
                 const Batch& batch) const {
    if constexpr (Use::kReadsAgain) {
      for_units(box, start, first, last,
                [&](const IndexSpace32& lines) { use_.lines(lines, {}, kAheadBytes, batch); });
      use_.done();
    }
  }

  void whole_segments(const Box& box) const {
    const std::int64_t units = box.line_count * blocks(box);
    parallel_for(threads_, box.count, grain_of(box.elements()),
                 [&](std::int64_t first, std::int64_t last) {
                   KeyArrays<K, 1> arrays;
                   Batch batch;
                   for (std::int64_t i = first; i < last; ++i) {
                     const Offsets at = box.origin + box.starts.offsets(i);
                     measure_units(box, at, 0, units, arrays.ranges());
                     use_.measured(arrays.ranges(), 1, at, Strides{}, batch);
                     use_units(box, at, 0, units, batch);
                   }
                 });
  }

  // Each segment by all threads: ranges of pieces, then the same pieces again.
  void shared_segments(const Box& box) const {
    const std::int64_t units = box.line_count * blocks(box);
    const std::int64_t pieces = std::min<std::int64_t>({units, 4 * threads_, kMaxPieces});
    const auto begin = [&](std::int64_t piece) { return piece * units / pieces; };
    for (std::int64_t i = 0; i < box.count; ++i) {
      const Offsets at = box.origin + box.starts.offsets(i);
      KeyArrays<K, kMaxPieces> arrays;
      const KeyRanges<K> parts = arrays.ranges();
      parallel_for(threads_, pieces, 1, [&](std::int64_t first, std::int64_t last) {
        for (std::int64_t p = first; p < last; ++p)
          measure_units(box, at, begin(p), begin(p + 1), parts.from(p));
      });
      for (std::int64_t p = 1; p < pieces; ++p) parts.include(0, parts, p);
      Batch batch;
      use_.measured(parts, 1, at, Strides{}, batch);
      if constexpr (Use::kReadsAgain)
        parallel_for(threads_, pieces, 1, [&](std::int64_t first, std::int64_t last) {
          use_units(box, at, begin(first), begin(last), batch);
        });
    }
  }

  // ---- columns -----------------------------------------------------------------------------

  void tiles(const Box& box, const Columns& columns) const {
    const std::int64_t share = groups_of(groups_of(columns.count, threads_), 64) * 64;
    const std::int64_t widest = Use::kReadsAgain ? kTileRowBytes / kBytes : kMost;
    std::int64_t width = std::clamp<std::int64_t>(share, 64, widest);
    width = width / columns.inner * columns.inner;
    const std::int64_t across = groups_of(columns.count, width);
    const std::int64_t tasks = columns.batch_count * across;
    if (threads_ > 1 && tasks < threads_ && columns.row_count * columns.count >= 4 * kSegmentGrain)
      return shared_tiles(box, columns);
    const std::int64_t grain = grain_of(columns.row_count * width);
    parallel_for(threads_, tasks, grain, [&](std::int64_t first, std::int64_t last) {
      for (std::int64_t task = first; task < last; ++task) {
        const std::int64_t column = task % across * width;
        whole_tile(columns, tile_origin(box, columns, task / across, column),
                   std::min(width, columns.count - column));
      }
    });
  }

  static Offsets tile_origin(const Box& box, const Columns& columns, std::int64_t batch,
                             std::int64_t column) {
    Offsets at = box.origin + columns.batches.offsets(batch);
    for (int i = 0; i < kOperands; ++i)
      at.at[i] += is_parameter(box, i) ? column / columns.inner : column;
    return at;
  }

  // The rows [first, last) of a tile.
  template <class Visit>
  void for_rows(const Columns& columns, const Offsets& at, std::int64_t width, std::int64_t first,
                std::int64_t last, const Visit& visit) const {
    for_each_piece(columns.rows, first, last,
                   [&](const Offsets& row, std::int64_t count, const Axis& axis) {
                     visit(IndexSpace32{at + row, width, count, axis.stride});
                   });
  }

  void measure_tile(const Columns& columns, const Offsets& at, std::int64_t width,
                    std::int64_t first, std::int64_t last, const KeyRanges<K>& ranges) const {
    ranges.clear(width, measure_.none());
    for_rows(columns, at, width, first, last,
             [&](const IndexSpace32& lines) { measure_columns(lines, ranges); });
  }

  // Columns become segments.
  void tile_measured(const Columns& columns, const Offsets& at, std::int64_t width,
                     const KeyRanges<K>& ranges, Batch& batch) const {
    const std::int64_t inner = columns.inner, count = width / inner;
    for (std::int64_t i = 0; inner > 1 && i < count; ++i) {
      ranges.low[i] = ranges.low[i * inner];
      ranges.high[i] = ranges.high[i * inner];
      ranges.special[i] = ranges.special[i * inner];
      for (std::int64_t j = 1; j < inner; ++j) ranges.include(i, ranges, i * inner + j);
    }
    Strides beside;
    beside.fill(1);
    use_.measured(ranges, count, at, beside, batch);
  }

  void use_tile(const Columns& columns, const Offsets& at, std::int64_t width, std::int64_t first,
                std::int64_t last, const Batch& batch) const {
    if constexpr (Use::kReadsAgain) {
      // A tile that stays in a cache leaves time to fetch the one beside it.
      const std::int64_t bytes = width * kBytes;
      const bool cached = (last - first) * bytes <= kTileBytes;
      for_rows(columns, at, width, first, last, [&](const IndexSpace32& lines) {
        use_.columns(lines, cached ? bytes : kAheadRows * lines.stride[0] * kBytes, batch);
      });
      use_.done();
    }
  }

  void whole_tile(const Columns& columns, const Offsets& at, std::int64_t width) const {
    KeyArrays<K, kMost> arrays;
    Batch batch;
    measure_tile(columns, at, width, 0, columns.row_count, arrays.ranges());
    tile_measured(columns, at, width, arrays.ranges(), batch);
    use_tile(columns, at, width, 0, columns.row_count, batch);
  }

  // Tiles one after another, the rows of each by all threads.
  void shared_tiles(const Box& box, const Columns& columns) const {
    const std::int64_t pieces =
        std::min<std::int64_t>({columns.row_count, 2 * threads_, kPartials<K> / kFewestColumns});
    const std::int64_t fit = kPartials<K> / pieces / kFewestColumns * kFewestColumns;
    const std::int64_t width = std::min(fit, kMost) / columns.inner * columns.inner;
    for (std::int64_t batch = 0; batch < columns.batch_count; ++batch)
      for (std::int64_t j = 0; j < columns.count; j += width)
        shared_tile(columns, tile_origin(box, columns, batch, j),
                    std::min(width, columns.count - j), pieces);
  }

  void shared_tile(const Columns& columns, const Offsets& at, std::int64_t width,
                   std::int64_t pieces) const {
    const auto begin = [&](std::int64_t piece) { return piece * columns.row_count / pieces; };
    KeyArrays<K, kPartials<K>> arrays;
    const KeyRanges<K> parts = arrays.ranges();
    parallel_for(threads_, pieces, 1, [&](std::int64_t first, std::int64_t last) {
      for (std::int64_t p = first; p < last; ++p)
        measure_tile(columns, at, width, begin(p), begin(p + 1), parts.from(p * width));
    });
    for (std::int64_t i = width; i < pieces * width; ++i) parts.include(i % width, parts, i);
    Batch batch;
    tile_measured(columns, at, width, parts, batch);
    if constexpr (Use::kReadsAgain)
      parallel_for(threads_, pieces, 1, [&](std::int64_t first, std::int64_t last) {
        use_tile(columns, at, width, begin(first), begin(last), batch);
      });
  }

  // ---- groups that cut lines ---------------------------------------------------------------

  void group_batch(const IndexSpaceOf<kOperands>& rows, const IndexSpace32& lines,
                   std::int64_t size) const {
    KeyArrays<K, kMost> arrays;
    Batch batch;
    const KeyRanges<K> ranges = arrays.ranges();
    const std::int64_t count = groups_of(lines.length, size), row_count = rows.size();
    const bool tiles = rows.rank > 0;
    const std::int64_t ahead = tiles ? kAheadRows * rows.axes[0].stride[0] * kBytes : kAheadBytes;
    ranges.clear(count, measure_.none());
    for (std::int64_t row = 0; row < row_count; ++row)
      measure_groups(lines.at + rows.offsets(row), lines.length, size, ahead, ranges);
    use_.measured(ranges, count, lines.at, lines.stride, batch);
    // Tiles that stay in a cache leave time to fetch the ones beside them.
    const std::int64_t beside = tiles ? lines.length * kBytes : kAheadBytes;
    for (std::int64_t row = 0; row < row_count; ++row)
      use_.groups(IndexSpace32{lines.at + rows.offsets(row), lines.length, 1, {}}, size, beside,
                  batch);
  }

  // The groups of a line, of which the last may be shorter.
  void measure_groups(const Offsets& at, std::int64_t length, std::int64_t size, std::int64_t ahead,
                      const KeyRanges<K>& ranges) const {
    const std::int64_t whole = length / size, rest = length % size;
    IndexSpace32 groups = {at, size, whole, {size}};
    measure_lines(groups, {0, 1}, ahead, ranges);
    if (rest == 0) return;
    groups.at.at[0] += whole * size;
    groups.length = rest;
    groups.count = 1;
    measure_lines(groups, {static_cast<int>(whole), 1}, ahead, ranges);
  }

  const Use& use_;
  const RangeMeasure<K>& measure_;
  const K* const input_;
  const int threads_;
};

}  // namespace planq::host
