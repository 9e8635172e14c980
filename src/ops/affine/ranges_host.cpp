// Ranges on the host: columns side by side, segments that are read by one thread each, and segments
// that all threads share. Partial results lie on the stack.
#include "ops/affine/ranges_host.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>

#include "host/parallel.h"
#include "host/simd.h"
#include "ops/affine/range.h"
#include "ops/affine/range_keys.h"

#define PLANQ_LOOPS "ops/affine/range_loops.h"
#include "host/each_level.h"

namespace planq::host {
namespace {

using math::Compute;

// Elements that are worth waking a thread for.
constexpr std::int64_t kGrain = 1 << 16;
// Rows that are measured by one call.
constexpr std::int64_t kBatch = 256;
// Long rows are dealt out by blocks of as many elements.
constexpr std::int64_t kBlockElements = 1 << 15;
// Shorter runs are better read as columns.
constexpr std::int64_t kShortRun = 64;
// How far in front of a loop its input is requested; of columns, in rows.
constexpr std::int64_t kAheadBytes = 8 << 10, kAheadRows = 4;
// Partial results of threads that share a segment.
constexpr std::int64_t kMaxPieces = 256;

template <class T>
RangeLoops<T> loops_of(bool signs, bool finite) {
#if PLANQ_SIMD_X86
  static const Level level = detect_level();
  if (level == Level::Avx512) return avx512::range_loops<T>(signs, finite);
  if (level == Level::Avx2) return avx2::range_loops<T>(signs, finite);
#endif
  return baseline::range_loops<T>(signs, finite);
}

template <class T>
class Measurement {
 public:
  using K = Key<T>;
  using C = Compute<T>;
  // Columns of a tile, and partial results of threads that share one: 32 KB of stack at most.
  static constexpr std::int64_t kTile = std::min<std::int64_t>(512, 2048 / sizeof(K));
  static constexpr std::int64_t kPartials = 8 * kTile;

  Measurement(const RangeProblem& problem, const RangeOperands& operands, const Stream& stream)
      : signs_(!problem.symmetric()),
        saturate_(problem.saturate()),
        operands_(operands),
        threads_(std::max(stream.threads, 1)),
        loops_(loops_of<T>(signs_, saturate_)) {}

  void run(const RangeSegments& box) const {
    Columns columns;
    const bool beside = columns_of(box, columns) &&
                        (columns.inner == 1 || (box.line_count > 1 && columns.inner < kShortRun));
    if (beside) return measure_columns(box, columns);
    is_shared(box) ? shared_segments(box) : whole_segments(box);
  }

 private:
  // Long segments, and so few that whole ones would leave more than a quarter of the threads idle.
  bool is_shared(const RangeSegments& box) const {
    const std::int64_t rounds = (box.count + threads_ - 1) / threads_;
    return threads_ > 1 && box.elements() >= 4 * kGrain && 3 * rounds * threads_ > 4 * box.count;
  }
  const T* input(std::int64_t element) const {
    return static_cast<const T*>(operands_.input.data) + element;
  }
  Keys<K> none() const { return no_keys<T>(signs_); }

  // ---- results -----------------------------------------------------------------------------

  // The value of a key. Symmetric keys are bit patterns already.
  C value_of(K key) const {
    const K bits =
        signs_ ? static_cast<K>(key ^ ((key >> (sizeof(K) * 8 - 1)) & kMagnitude<T>)) : key;
    return math::widen(math::bit_cast<T>(bits));
  }
  template <bool kHigh>
  void store_end(C value, bool none, std::int64_t at, std::int64_t previous_at) const {
    constexpr int kOutput = kHigh ? RangeEnd::kHigh : RangeEnd::kLow;
    constexpr int kBefore = kHigh ? RangeEnd::kPreviousHigh : RangeEnd::kPreviousLow;
    const C* const before = static_cast<const C*>(operands_.ends[kBefore].data);
    static_cast<C*>(operands_.ends[kOutput].data)[at] = math::stored_end<kHigh>(
        value, none, before == nullptr ? nullptr : before + previous_at, saturate_);
  }
  void store(const Keys<K>& keys, const Offsets& at) const {
    const bool none = signs_ ? keys.low > keys.high : keys.high < 0;
    const bool poisoned = !none && (keys.high > kInfinityKey<T> ||
                                    (signs_ && keys.low < static_cast<K>(~kInfinityKey<T>)));
    const C high = poisoned ? math::canonical_nan<C>() : value_of(keys.high);
    store_end<true>(high, none, at.at[RangeEnd::kHigh], at.at[RangeEnd::kPreviousHigh]);
    if (!signs_) return;
    const C low = poisoned ? high : value_of(keys.low);
    store_end<false>(low, none, at.at[RangeEnd::kLow], at.at[RangeEnd::kPreviousLow]);
  }
  // Stores of(i) for segments first + i.
  template <class Of>
  void store_all(const RangeSegments& box, std::int64_t first, std::int64_t count,
                 const Of& of) const {
    std::int64_t i = 0;
    for_each_piece(box.results, first, first + count,
                   [&](Offsets at, std::int64_t stretch, const Axis& axis) {
                     for (int end = 0; end < 4; ++end) at.at[end] += box.result_origin.at[end];
                     for (std::int64_t j = 0; j < stretch; ++j) {
                       store(of(i++), at);
                       for (int end = 0; end < 4; ++end) at.at[end] += axis.stride[end];
                     }
                   });
  }

  // ---- segments ----------------------------------------------------------------------------

  // A unit is a line, or a block of a long line.
  static std::int64_t blocks(const RangeSegments& box) {
    return std::max<std::int64_t>(1, (box.length + kBlockElements - 1) / kBlockElements);
  }

  Keys<K> keys_of(const T* x, KeyRows rows) const {
    Keys<K> keys[kBatch], all = none();
    for (std::int64_t i = 0; i < rows.count; i += kBatch) {
      const std::int64_t count = std::min(kBatch, rows.count - i);
      loops_.rows(x + i * rows.stride, {rows.length, count, rows.stride}, kAheadBytes, keys);
      for (std::int64_t j = 0; j < count; ++j) all.add(keys[j]);
    }
    return all;
  }

  // The units [first, last) of the segment that begins at `start`.
  Keys<K> unit_keys(const RangeSegments& box, std::int64_t start, std::int64_t first,
                    std::int64_t last) const {
    Keys<K> all = none();
    const std::int64_t per_line = blocks(box);
    if (per_line == 1) {
      for_each_piece(box.lines, first, last,
                     [&](const Offsets& at, std::int64_t count, const Axis& axis) {
                       all.add(keys_of(input(start + at.at[Segments::kElements]),
                                       {box.length, count, axis.stride[Segments::kElements]}));
                     });
      return all;
    }
    for (std::int64_t unit = first; unit < last; ++unit) {
      const std::int64_t begin = unit % per_line * kBlockElements;
      const std::int64_t line = box.lines.offsets(unit / per_line).at[Segments::kElements];
      all.add(keys_of(input(start + line + begin),
                      {std::min(kBlockElements, box.length - begin), 1, 0}));
    }
    return all;
  }

  void whole_segments(const RangeSegments& box) const {
    const std::int64_t units = box.line_count * blocks(box);
    const std::int64_t grain =
        std::max<std::int64_t>(1, kGrain / std::max<std::int64_t>(box.elements(), 1));
    parallel_for(threads_, box.count, grain, [&](std::int64_t first, std::int64_t last) {
      for (std::int64_t i = first; i < last; i += kBatch) {
        const std::int64_t count = std::min(kBatch, last - i);
        Keys<K> keys[kBatch];
        Keys<K>* out = keys;
        for_each_piece(box.starts, i, i + count,
                       [&](const Offsets& at, std::int64_t stretch, const Axis& axis) {
                         const std::int64_t start =
                             box.origin.at[Segments::kElements] + at.at[Segments::kElements];
                         const std::int64_t step = axis.stride[Segments::kElements];
                         if (units == 1) {
                           loops_.rows(input(start), {box.length, stretch, step}, kAheadBytes, out);
                         } else {
                           for (std::int64_t j = 0; j < stretch; ++j)
                             out[j] = unit_keys(box, start + j * step, 0, units);
                         }
                         out += stretch;
                       });
        store_all(box, i, count, [&](std::int64_t j) { return keys[j]; });
      }
    });
  }

  void shared_segments(const RangeSegments& box) const {
    const std::int64_t units = box.line_count * blocks(box);
    const std::int64_t wanted = std::min<std::int64_t>(kMaxPieces, box.elements() / kGrain);
    const std::int64_t pieces =
        std::clamp<std::int64_t>(units, 1, std::max<std::int64_t>(1, wanted));
    for (std::int64_t i = 0; i < box.count; ++i) {
      Keys<K> parts[kMaxPieces], all = none();
      const std::int64_t start =
          box.origin.at[Segments::kElements] + box.starts.offsets(i).at[Segments::kElements];
      parallel_for(threads_, pieces, 1, [&](std::int64_t first, std::int64_t last) {
        for (std::int64_t p = first; p < last; ++p)
          parts[p] = unit_keys(box, start, units * p / pieces, units * (p + 1) / pieces);
      });
      for (std::int64_t p = 0; p < pieces; ++p) all.add(parts[p]);
      store_all(box, i, 1, [&](std::int64_t) { return all; });
    }
  }

  // ---- columns -----------------------------------------------------------------------------

  struct Tile {
    std::int64_t input, column, width, batch;
  };

  static Tile tile_of(const RangeSegments& box, const Columns& columns, std::int64_t width,
                      std::int64_t task) {
    const std::int64_t tiles = (columns.count + width - 1) / width;
    const std::int64_t batch = task / tiles, column = task % tiles * width;
    const std::int64_t start = columns.batches.offsets(batch).at[Segments::kElements];
    return {box.origin.at[Segments::kElements] + start + column, column,
            std::min(width, columns.count - column), batch};
  }

  // Rows [first, last) of a tile.
  void tile_keys(const Columns& columns, const Tile& tile, std::int64_t first, std::int64_t last,
                 K* low, K* high) const {
    std::fill_n(low, tile.width, none().low);
    std::fill_n(high, tile.width, none().high);
    for_each_piece(
        columns.rows, first, last, [&](const Offsets& at, std::int64_t count, const Axis& axis) {
          const std::int64_t stride = axis.stride[Segments::kElements];
          loops_.columns(input(tile.input + at.at[Segments::kElements]),
                         {tile.width, count, stride},
                         kAheadRows * stride * static_cast<std::int64_t>(sizeof(T)), low, high);
        });
  }

  void store_tile(const RangeSegments& box, const Columns& columns, const Tile& tile, const K* low,
                  const K* high) const {
    const std::int64_t first = (tile.batch * columns.count + tile.column) / columns.inner;
    store_all(box, first, tile.width / columns.inner, [&](std::int64_t i) {
      Keys<K> all = none();
      for (std::int64_t j = i * columns.inner; j < (i + 1) * columns.inner; ++j)
        all.add({low[j], high[j]});
      return all;
    });
  }

  void measure_columns(const RangeSegments& box, const Columns& columns) const {
    const std::int64_t width = kTile / columns.inner * columns.inner;
    const std::int64_t tasks = columns.batch_count * ((columns.count + width - 1) / width);
    const std::int64_t tile_elements = std::min(width, columns.count) * columns.row_count;
    if (tasks < threads_ && tile_elements >= 4 * kGrain)
      return shared_tiles(box, columns, width, tasks);
    const std::int64_t grain =
        std::max<std::int64_t>(1, kGrain / std::max<std::int64_t>(tile_elements, 1));
    parallel_for(threads_, tasks, grain, [&](std::int64_t first, std::int64_t last) {
      K low[kTile], high[kTile];
      for (std::int64_t task = first; task < last; ++task) {
        const Tile tile = tile_of(box, columns, width, task);
        tile_keys(columns, tile, 0, columns.row_count, low, high);
        store_tile(box, columns, tile, low, high);
      }
    });
  }

  // Few columns and many rows: all threads work on one tile.
  void shared_tiles(const RangeSegments& box, const Columns& columns, std::int64_t width,
                    std::int64_t tasks) const {
    for (std::int64_t task = 0; task < tasks; ++task) {
      const Tile tile = tile_of(box, columns, width, task);
      const std::int64_t pieces = std::min({kMaxPieces, kPartials / tile.width, columns.row_count});
      K low[kPartials], high[kPartials];
      parallel_for(threads_, pieces, 1, [&](std::int64_t first, std::int64_t last) {
        for (std::int64_t p = first; p < last; ++p)
          tile_keys(columns, tile, columns.row_count * p / pieces,
                    columns.row_count * (p + 1) / pieces, low + p * tile.width,
                    high + p * tile.width);
      });
      for (std::int64_t i = tile.width; i < pieces * tile.width; ++i) {
        K &first_low = low[i % tile.width], &first_high = high[i % tile.width];
        first_low = std::min(first_low, low[i]);
        first_high = std::max(first_high, high[i]);
      }
      store_tile(box, columns, tile, low, high);
    }
  }

  const bool signs_, saturate_;
  const RangeOperands& operands_;
  const int threads_;
  const RangeLoops<T> loops_;
};

template <class T>
void measure(const RangeProblem& problem, const RangeOperands& operands, const Stream& stream) {
  const Measurement<T> measurement(problem, operands, stream);
  for_each_box(problem, operands, [&](const RangeSegments& box, int) { measurement.run(box); });
}

}  // namespace

void measure_ranges(const RangeProblem& problem, const RangeOperands& operands,
                    const Stream& stream) {
  switch (problem.input_dtype) {
    case DType::Float16:
      return measure<math::Half>(problem, operands, stream);
    case DType::BFloat16:
      return measure<math::Bfloat16>(problem, operands, stream);
    case DType::Float32:
      return measure<float>(problem, operands, stream);
    default:
      return measure<double>(problem, operands, stream);
  }
}

}  // namespace planq::host
