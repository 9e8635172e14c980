// One launch on the host. A segment is measured and quantized while it is in a core's cache; four
// drivers do that, over boxes of segments (core/segments.h): batches of rows that are segments,
// segments of several rows, segments side by side in columns, and batches of tiles or of groups
// whose codes share bytes.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

#include "core/segments.h"
#include "host/parallel.h"
#include "host/simd.h"
#include "ops/affine/dynamic_range_quantize/desc.h"
#include "ops/affine/dynamic_range_quantize/host_segments.h"

namespace planq::dynamic_range_quantize {

using host::parallel_for;
using math::AffineRecipe;
using math::Compute;
using math::SegmentParameters;

// Elements that are worth waking a thread for.
inline constexpr std::int64_t kGrain = 1 << 16;
// Input that is measured and then quantized, small enough to stay in a first-level cache between:
// a batch of short rows.
inline constexpr std::int64_t kBatchBytes = 8 << 10;
// Rows from this size on are quantized in steps, each followed by measuring as much of the next
// row, so that memory is read at an even rate.
inline constexpr std::int64_t kLongRowBytes = 8 << 10, kStepBytes = 8 << 10;
// The most tiles of one row, or groups whose codes share bytes, that are taken together; even, and
// at most kSegments.
inline constexpr std::int64_t kGroupBatch = 64;
static_assert(kGroupBatch <= kSegments<double>);
// Codes that wait to be packed.
inline constexpr std::int64_t kStage = 4096;
static_assert(kStage >= kSegments<float>, "a row of a tile is delivered at once");
// Long rows are measured and quantized by blocks of as many elements.
inline constexpr std::int64_t kBlockElements = 1 << 15;
// How far in front of a pass over memory its input is requested, and how much further than the next
// batch or row.
inline constexpr std::int64_t kAheadBytes = 8 << 10, kFurtherBytes = 6 << 10;
// The same for columns, in rows; and tiles that a second-level cache holds.
inline constexpr std::int64_t kAheadRows = 4, kTileRowBytes = 1 << 10, kTileBytes = 256 << 10;
static_assert(kTileRowBytes / 2 <= kSegments<float>);
static_assert(kTileRowBytes / 8 <= kSegments<double>);
// Operands that do not fit a cache together are written past it, in stretches of at least so many.
inline constexpr std::int64_t kStreamBytes = 32 << 20, kStreamStretch = 1024;
// Partial ranges that one launch keeps on its stack: of a segment; of columns, for up to 32 pieces
// of as many as fill four cache lines with what they have in C. Those are whole bytes of 4-bit
// codes.
inline constexpr std::int64_t kMaxPieces = 256;
template <class C>
inline constexpr std::int64_t kFewestColumns = 256 / sizeof(C);
template <class C>
inline constexpr std::int64_t kPartials = 32 * kFewestColumns<C>;
// Zero points beyond this leave the range in which bounds of quotients are exact floats.
inline constexpr std::int32_t kLargestVectorZeroPoint = 1 << 21;

// Loops that need no speed: they run for segments with NaN, infinities or extreme scales.
template <class C>
struct ScalarKernels {
  math::Range<C> (*finite_range)(const void* input, Rows rows, bool signs);
  void (*codes)(const void* input, Rows rows, std::uint8_t* codes, std::int64_t code_stride,
                const AffineRecipe<C>& recipe, const SegmentParameters<C>& parameters);
};

// What prepare() leaves for every call.
template <class C>
struct Prepared {
  AffineRecipe<C> recipe;
  RangeKernels<C> range;
  QuantizeKernels<C> quantize;
  ScalarKernels<C> scalar;
  SettleKernel<C> settle;
  PackKernel pack;
  std::int64_t element_bytes;
  bool four_bit;
  bool plain;  // settle does for segments without special elements
};

// The range of nothing, which any element replaces.
template <class C>
math::Range<C> no_range(bool signs) {
  if (!signs) return {C{0}, C{0}, false};
  return {std::numeric_limits<C>::infinity(), -std::numeric_limits<C>::infinity(), false};
}

template <class C>
void include(math::Range<C>& range, const math::Range<C>& other) {
  range.low = other.low < range.low ? other.low : range.low;
  range.high = other.high > range.high ? other.high : range.high;
  range.special |= other.special;
}

template <class T>
math::Range<Compute<T>> finite_range(const void* input, Rows rows, bool signs) {
  using C = Compute<T>;
  auto range = no_range<C>(signs);
  for (std::int64_t i = 0; i < rows.count; ++i) {
    const T* row = static_cast<const T*>(input) + i * rows.stride;
    for (std::int64_t j = 0; j < rows.length; ++j) {
      const C x = math::widen(row[j]);
      if (!math::is_finite(x)) continue;
      const C seen = signs ? x : std::abs(x);
      include(range, {signs ? seen : C{0}, seen, false});
    }
  }
  range.special = true;
  return range;
}

template <class T>
void scalar_codes(const void* input, Rows rows, std::uint8_t* codes, std::int64_t code_stride,
                  const AffineRecipe<Compute<T>>& recipe,
                  const SegmentParameters<Compute<T>>& parameters) {
  for (std::int64_t i = 0; i < rows.count; ++i) {
    const T* row = static_cast<const T*>(input) + i * rows.stride;
    std::uint8_t* out = codes + i * code_stride;
    if (parameters.poisoned) {
      std::memset(out, math::code_of(Compute<T>{0}, recipe, parameters),
                  static_cast<std::size_t>(rows.length));
    } else {
      for (std::int64_t j = 0; j < rows.length; ++j)
        out[j] = math::code_of(math::widen(row[j]), recipe, parameters);
    }
  }
}

// One launch: the plan, the operands, and the steps that all drivers share.
template <class C>
class Launch {
 public:
  Launch(const Prepared<C>& plan, const Fields& fields, const Operands& operands,
         const Stream& stream)
      : plan_(plan), fields_(fields), operands_(operands), threads_(std::max(stream.threads, 1)) {
    const std::int64_t elements = fields.shape.elements();
    streaming_ = elements * (plan.element_bytes + 1) > kStreamBytes;
  }

  void run() const {
    const Fields& fields = fields_;
    const SegmentOperand views[] = {
        {&operands_[kInput]},
        {&operands_[kOutput], false, plan_.four_bit},
        {&operands_[kScale], true},
        {operands_[kZeroPoint].data ? &operands_[kZeroPoint] : nullptr, true}};
    if (batches_groups()) {
      Scope rows = fields.scope;
      rows.size = fields.shape.last();
      return for_each_box(fields.shape, rows, views, LineKind::Rows,
                          [&](const Box& box) { group_batches(box, fields.scope.size); });
    }
    for_each_box(fields.shape, fields.scope, views, LineKind::Joined,
                 [&](const Box& box) { run(box); });
  }

 private:
  using Box = planq::Segments;

  // Small tiles beside each other, and groups whose codes share bytes.
  bool batches_groups() const {
    const Scope& scope = fields_.scope;
    if (fields_.shape.elements() == 0) return false;
    if (shares_bytes(fields_)) return true;
    if (scope.kind != ScopeKind::Block || scope.size >= fields_.shape.last()) return false;
    const std::int64_t rows = std::min(scope.rows, fields_.shape[fields_.shape.rank - 2]);
    return rows * scope.size * plan_.element_bytes <= kTileBytes;
  }

  void run(const Box& box) const {
    if (box.elements() == 0) return write_empty(box);
    planq::Columns columns;
    if (columns_of(box, columns) && columns.inner == 1) return run_columns(box, columns);
    if (box.line_count == 1 && !is_divided(box)) return row_batches(box);
    is_divided(box) ? divided_segments(box) : whole_segments(box);
  }

  // Long segments, and so few that whole ones would leave more than a quarter of the threads idle.
  bool is_divided(const Box& box) const {
    const std::int64_t rounds = (box.count + threads_ - 1) / threads_;
    return threads_ > 1 && box.elements() >= 4 * kGrain && 3 * rounds * threads_ > 4 * box.count;
  }

  // ---- pieces of work ----------------------------------------------------------------------

  bool signs() const { return plan_.recipe.mode == Mode::Asymmetric; }
  bool low_first() const { return fields_.nibble_order == NibbleOrder::LowFirst; }
  bool divides() const { return plan_.recipe.quotient == Quotient::Divide; }
  const void* input(std::int64_t element) const {
    return static_cast<const std::byte*>(operands_[kInput].data) + element * plan_.element_bytes;
  }
  std::uint8_t* output(std::int64_t code) const {
    return static_cast<std::uint8_t*>(operands_[kOutput].data) + (plan_.four_bit ? code / 2 : code);
  }

  // Ranges of rows; those with a NaN or an infinity once more, where the descriptor asks for it.
  void measure_rows(std::int64_t at, Rows rows, Owner owner, std::int64_t ahead,
                    SegmentRanges<C>& ranges) const {
    plan_.range.rows(input(at), rows, owner, ahead, signs(), ranges);
    if (plan_.recipe.nonfinite == NonFinite::Propagate) return;
    const std::int64_t owners = owner.step ? rows.count : 1;
    const Rows own = {rows.length, owner.step ? 1 : rows.count, rows.stride};
    for (std::int64_t i = 0; i < owners; ++i)
      if (ranges.special[owner.first + i])
        measure_finite(at + i * rows.stride, own, owner.first + i, ranges);
  }

  std::int64_t ahead_of(Rows rows) const { return kAheadRows * rows.stride * plan_.element_bytes; }

  void measure_columns(std::int64_t at, Rows rows, SegmentRanges<C>& ranges) const {
    plan_.range.columns(input(at), rows, ahead_of(rows), signs(), ranges);
    if (plan_.recipe.nonfinite == NonFinite::Propagate) return;
    for (std::int64_t j = 0; j < rows.length; ++j)
      if (ranges.special[j]) measure_finite(at + j, {1, rows.count, rows.stride}, j, ranges);
  }

  void measure_finite(std::int64_t at, Rows rows, std::int64_t segment,
                      SegmentRanges<C>& ranges) const {
    const auto range = plan_.scalar.finite_range(input(at), rows, signs());
    ranges.low[segment] = range.low;
    ranges.high[segment] = range.high;
  }

  // From ranges to parameters. True if all of the segments are for the vector loops.
  bool settle(Segments<C>& segments, std::int64_t count) const {
    bool plain = plan_.plain;
    for (std::int64_t i = 0; i < count; ++i) plain &= !segments.special[i];
    if (plain) return plan_.settle(plan_.recipe, count, segments);
    bool vector = true;
    for (std::int64_t i = 0; i < count; ++i) vector &= settle_one(segments, i) == Path::Vector;
    return vector;
  }

  Path settle_one(Segments<C>& segments, std::int64_t i) const {
    const bool none = segments.low[i] > segments.high[i];
    const auto parameters = math::segment_parameters(
        plan_.recipe,
        {none ? C{0} : segments.low[i], none ? C{0} : segments.high[i], segments.special[i]});
    segments.scale[i] = parameters.scale;
    segments.inverse[i] = parameters.inverse;
    segments.zero_point[i] = parameters.zero_point;
    segments.zero_code[i] = static_cast<std::uint8_t>(parameters.zero_point);
    segments.path[i] = path_of(parameters, segments.special[i]);
    const C zero = static_cast<C>(parameters.zero_point);
    segments.low[i] = plan_.recipe.q_min - zero;
    segments.high[i] = plan_.recipe.q_max - zero;
    return segments.path[i];
  }

  Path path_of(const SegmentParameters<C>& parameters, bool special) const {
    if (parameters.poisoned) return Path::Poisoned;
    const std::int32_t zero = parameters.zero_point;
    if (special || zero > kLargestVectorZeroPoint || zero < -kLargestVectorZeroPoint)
      return Path::Scalar;
    const bool vector =
        divides() ? is_exact(parameters.scale) : math::is_finite(parameters.inverse);
    return vector ? Path::Vector : Path::Scalar;
  }

  void write_parameters(const Segments<C>& segments, std::int64_t count, const Offsets& at,
                        std::int64_t scale_stride, std::int64_t zero_stride) const {
    void* const scales = operands_[kScale].data;
    auto* const zeros = static_cast<std::int32_t*>(operands_[kZeroPoint].data);
    for (std::int64_t i = 0; i < count; ++i) {
      math::store_scale(scales, at.at[kScale] + i * scale_stride, segments.scale[i],
                        plan_.recipe.scale_dtype);
      if (zeros) zeros[at.at[kZeroPoint] + i * zero_stride] = segments.zero_point[i];
    }
  }

  // One byte per code, whatever the path of each row.
  void row_codes(std::int64_t at, Rows rows, Owner owner, std::uint8_t* codes,
                 std::int64_t code_stride, Memory memory, bool vector,
                 const Segments<C>& segments) const {
    plan_.quantize.rows(input(at), rows, owner, codes, code_stride, memory, divides(), segments);
    if (vector) return;
    for (std::int64_t i = 0; i < rows.count; ++i) {
      const std::int64_t segment = owner.first + i * owner.step;
      if (segments.path[segment] != Path::Vector)
        plan_.scalar.codes(input(at + i * rows.stride), {rows.length, 1, 0},
                           codes + i * code_stride, 0, plan_.recipe, segments.parameters(segment));
    }
  }

  void column_codes(std::int64_t at, Rows rows, std::uint8_t* codes, std::int64_t code_stride,
                    Memory memory, bool vector, const Segments<C>& segments) const {
    plan_.quantize.columns(input(at), rows, codes, code_stride, memory, divides(), segments);
    if (vector) return;
    for (std::int64_t j = 0; j < rows.length; ++j)
      if (segments.path[j] != Path::Vector)
        plan_.scalar.codes(input(at + j), {1, rows.count, rows.stride}, codes + j, code_stride,
                           plan_.recipe, segments.parameters(j));
  }

  // Quantizes rows into the output, whose rows are code_stride codes apart.
  void quantize_rows(const Offsets& at, Rows rows, Owner owner, std::int64_t code_stride,
                     std::int64_t ahead, bool vector, const Segments<C>& segments) const {
    if (!plan_.four_bit)
      return row_codes(at.at[kInput], rows, owner, output(at.at[kOutput]), code_stride,
                       {ahead, streaming_ && rows.length >= kStreamStretch}, vector, segments);
    staged(
        rows, code_stride, at,
        [&](std::int64_t from, Rows part, std::int64_t first, std::uint8_t* codes,
            std::int64_t stage_stride) {
          const Owner part_owner = {owner.first + static_cast<int>(first) * owner.step, owner.step};
          row_codes(from, part, part_owner, codes, stage_stride, {ahead, false}, vector, segments);
        });
  }

  void quantize_columns(const Offsets& at, Rows rows, std::int64_t code_stride, std::int64_t ahead,
                        bool vector, const Segments<C>& segments) const {
    if (!plan_.four_bit)
      return column_codes(at.at[kInput], rows, output(at.at[kOutput]), code_stride,
                          {ahead, streaming_}, vector, segments);
    staged(rows, code_stride, at,
           [&](std::int64_t from, Rows part, std::int64_t, std::uint8_t* codes,
               std::int64_t stage_stride) {
             column_codes(from, part, codes, stage_stride, {ahead, false}, vector, segments);
           });
  }

  // Cuts rows into parts whose codes fit a small buffer: make(input offset, part, its first row,
  // codes, stride of the codes) fills it, then it goes to the output. Parts of a row begin at even
  // positions, and an odd row is followed by a code 0.
  template <class Make>
  void staged(Rows rows, std::int64_t code_stride, const Offsets& at, Make&& make) const {
    alignas(64) std::uint8_t codes[kStage];
    const std::int64_t width = std::min(rows.length, kStage);
    const std::int64_t even = width + width % 2;
    const std::int64_t height = kStage / even;
    for (std::int64_t i = 0; i < rows.count; i += height) {
      const std::int64_t count = std::min(height, rows.count - i);
      for (std::int64_t j = 0; j < rows.length; j += width) {
        const Rows part = {std::min(width, rows.length - j), count, rows.stride};
        const std::int64_t stride = part.length + part.length % 2;
        make(at.at[kInput] + i * rows.stride + j, part, i, codes, stride);
        if (part.length % 2 == 1)
          for (std::int64_t row = 0; row < count; ++row) codes[row * stride + part.length] = 0;
        // Rows that follow each other in the output go there as one.
        const std::int64_t joined = stride == code_stride ? count : 1;
        for (std::int64_t row = 0; row < count; row += joined)
          plan_.pack(codes + row * stride, ((joined - 1) * stride + part.length + 1) / 2,
                     output(at.at[kOutput] + (i + row) * code_stride + j), low_first());
      }
    }
  }

  // ---- rows that are segments --------------------------------------------------------------

  void row_batches(const Box& box) const {
    const std::int64_t grain = std::max<std::int64_t>(1, kGrain / box.length);
    const std::int64_t row_bytes = box.length * plan_.element_bytes;
    const std::int64_t batch = std::clamp<std::int64_t>(kBatchBytes / row_bytes, 1, kSegments<C>);
    parallel_for(threads_, box.count, grain, [&](std::int64_t first, std::int64_t last) {
      for_each_piece(
          box.starts, first, last, [&](const Offsets& at, std::int64_t count, const Axis& axis) {
            const Offsets origin = box.origin + at;
            if (row_bytes >= kLongRowBytes) return long_rows(origin, box.length, count, axis);
            for (std::int64_t i = 0; i < count; i += batch)
              row_batch(moved(origin, axis, i), box.length, std::min(batch, count - i), axis);
          });
      if (streaming_) host::stream_fence();
    });
  }

  void row_batch(const Offsets& at, std::int64_t length, std::int64_t count,
                 const Axis& axis) const {
    Segments<C> segments;
    const Rows rows = {length, count, axis.stride[kInput]};
    measure_rows(at.at[kInput], rows, {0, 1}, 0, segments);
    const bool vector = settle(segments, count);
    write_parameters(segments, count, at, axis.stride[kScale], axis.stride[kZeroPoint]);
    const std::int64_t next = count * rows.stride * plan_.element_bytes;
    quantize_rows(at, rows, {0, 1}, axis.stride[kOutput], next + kFurtherBytes, vector, segments);
  }

  void long_rows(const Offsets& origin, std::int64_t length, std::int64_t count,
                 const Axis& axis) const {
    Segments<C> segments;
    measure_rows(origin.at[kInput], {length, 1, 0}, {0, 0}, kAheadBytes, segments);
    auto range = range_at(segments, 0);
    for (std::int64_t i = 0; i < count; ++i) {
      const Offsets at = moved(origin, axis, i);
      const bool vector = settle_segment(range, at, segments);
      range = long_row(at, length, axis.stride[kInput], i + 1 < count, vector, segments);
    }
  }

  // Quantizes a row and, if there are more, measures the one that is `next` elements further.
  math::Range<C> long_row(Offsets at, std::int64_t length, std::int64_t next, bool more,
                          bool vector, Segments<C>& segments) const {
    constexpr int kMeasured = 1;
    const std::int64_t longest = kStepBytes / plan_.element_bytes;
    const std::int64_t ahead = next * plan_.element_bytes + kFurtherBytes;
    auto range = no_range<C>(signs());
    for (std::int64_t i = 0; i < length; i += longest) {
      const std::int64_t count = std::min(longest, length - i);
      quantize_rows(at, {count, 1, 0}, {0, 0}, 0, ahead, vector, segments);
      if (more) {
        measure_rows(at.at[kInput] + next, {count, 1, 0}, {kMeasured, 0}, 0, segments);
        include(range, range_at(segments, kMeasured));
      }
      at.at[kInput] += count;
      at.at[kOutput] += count;
    }
    return range;
  }

  // ---- segments of several rows, or of one row for all threads -------------------------------

  // A unit is a row, or a block of a long row.
  std::int64_t blocks(const Box& box) const {
    return (box.length + kBlockElements - 1) / kBlockElements;
  }

  // Calls visit(offsets, rows, stride of their codes) for the units [first, last) of a segment.
  template <class Visit>
  void visit_units(const Box& box, const Offsets& origin, std::int64_t first, std::int64_t last,
                   Visit&& visit) const {
    const std::int64_t per_row = blocks(box);
    if (per_row == 1) {
      for_each_piece(
          box.lines, first, last, [&](const Offsets& at, std::int64_t count, const Axis& a) {
            visit(origin + at, Rows{box.length, count, a.stride[kInput]}, a.stride[kOutput]);
          });
      return;
    }
    for (std::int64_t unit = first; unit < last; ++unit) {
      Offsets at = origin + box.lines.offsets(unit / per_row);
      const std::int64_t begin = unit % per_row * kBlockElements;
      at.at[kInput] += begin;
      at.at[kOutput] += begin;
      visit(at, Rows{std::min(kBlockElements, box.length - begin), 1, 0}, std::int64_t{0});
    }
  }

  math::Range<C> measure_units(const Box& box, const Offsets& origin, std::int64_t first,
                               std::int64_t last) const {
    SegmentRanges<C> ranges;
    auto range = no_range<C>(signs());
    visit_units(box, origin, first, last, [&](const Offsets& at, Rows rows, std::int64_t) {
      measure_rows(at.at[kInput], rows, {0, 0}, kAheadBytes, ranges);
      include(range, range_at(ranges, 0));
    });
    return range;
  }

  bool settle_segment(const math::Range<C>& range, const Offsets& at, Segments<C>& segments) const {
    put_column(segments, 0, range);
    const bool vector = settle(segments, 1);
    write_parameters(segments, 1, at, 0, 0);
    return vector;
  }

  void quantize_units(const Box& box, const Offsets& origin, std::int64_t first, std::int64_t last,
                      bool vector, const Segments<C>& segments) const {
    visit_units(box, origin, first, last,
                [&](const Offsets& at, Rows rows, std::int64_t code_stride) {
                  quantize_rows(at, rows, {0, 0}, code_stride, kAheadBytes, vector, segments);
                });
    if (streaming_) host::stream_fence();
  }

  void whole_segments(const Box& box) const {
    const std::int64_t units = box.line_count * blocks(box);
    const std::int64_t size = box.line_count * box.length;
    const std::int64_t grain = std::max<std::int64_t>(1, kGrain / size);
    parallel_for(threads_, box.count, grain, [&](std::int64_t first, std::int64_t last) {
      for (std::int64_t point = first; point < last; ++point) {
        Segments<C> segments;
        const Offsets at = box.origin + box.starts.offsets(point);
        const bool vector = settle_segment(measure_units(box, at, 0, units), at, segments);
        quantize_units(box, at, 0, units, vector, segments);
      }
    });
  }

  // Each segment by all threads: ranges of pieces, then codes of the same pieces.
  void divided_segments(const Box& box) const {
    const std::int64_t units = box.line_count * blocks(box);
    const std::int64_t pieces = std::min<std::int64_t>({units, 4 * threads_, kMaxPieces});
    const auto begin = [&](std::int64_t piece) { return piece * units / pieces; };
    for (std::int64_t point = 0; point < box.count; ++point) {
      const Offsets at = box.origin + box.starts.offsets(point);
      std::array<math::Range<C>, kMaxPieces> partial;
      parallel_for(threads_, pieces, 1, [&](std::int64_t first, std::int64_t last) {
        for (std::int64_t piece = first; piece < last; ++piece)
          partial[piece] = measure_units(box, at, begin(piece), begin(piece + 1));
      });
      auto range = no_range<C>(signs());
      for (std::int64_t piece = 0; piece < pieces; ++piece) include(range, partial[piece]);
      Segments<C> segments;
      const bool vector = settle_segment(range, at, segments);
      parallel_for(threads_, pieces, 1, [&](std::int64_t first, std::int64_t last) {
        quantize_units(box, at, begin(first), begin(last), vector, segments);
      });
    }
  }
  // ---- columns -------------------------------------------------------------------------------

  void run_columns(const Box& box, const planq::Columns& columns) const {
    const std::int64_t rows = columns.row_count;
    const std::int64_t share = (columns.count + threads_ - 1) / threads_;
    const std::int64_t widest = kTileRowBytes / plan_.element_bytes;
    const std::int64_t width = std::clamp<std::int64_t>((share + 63) / 64 * 64, 64, widest);
    const std::int64_t tiles = (columns.count + width - 1) / width;
    const std::int64_t tasks = columns.batch_count * tiles;
    if (threads_ > 1 && tasks < threads_ && rows * columns.count >= 4 * kGrain)
      return divided_columns(box, columns);
    const std::int64_t grain = std::max<std::int64_t>(1, kGrain / (rows * width));
    parallel_for(threads_, tasks, grain, [&](std::int64_t first, std::int64_t last) {
      for (std::int64_t task = first; task < last; ++task) {
        const std::int64_t begin = task % tiles * width;
        column_tile(columns, tile_origin(box, columns, task / tiles, begin),
                    std::min(width, columns.count - begin));
      }
    });
  }

  Offsets tile_origin(const Box& box, const planq::Columns& columns, std::int64_t batch,
                      std::int64_t column) const {
    Offsets at = box.origin + columns.batches.offsets(batch);
    for (std::int64_t& offset : at.at) offset += column;
    return at;
  }

  // The ranges of some rows of a tile.
  void measure_tile(const planq::Columns& columns, const Offsets& origin, std::int64_t width,
                    std::int64_t first, std::int64_t last, SegmentRanges<C>& ranges) const {
    bool begun = false;
    for_each_piece(columns.rows, first, last,
                   [&](const Offsets& at, std::int64_t count, const Axis& axis) {
                     const Rows rows = {width, count, axis.stride[kInput]};
                     const std::int64_t from = origin.at[kInput] + at.at[kInput];
                     if (!begun) return begun = true, measure_columns(from, rows, ranges);
                     SegmentRanges<C> more;
                     measure_columns(from, rows, more);
                     for (std::int64_t j = 0; j < width; ++j)
                       include_column(ranges, j, range_at(more, j));
                   });
  }

  static math::Range<C> range_at(const SegmentRanges<C>& ranges, std::int64_t j) {
    return {ranges.low[j], ranges.high[j], ranges.special[j]};
  }
  static void put_column(SegmentRanges<C>& ranges, std::int64_t j, const math::Range<C>& range) {
    ranges.low[j] = range.low;
    ranges.high[j] = range.high;
    ranges.special[j] = range.special;
  }
  static void include_column(SegmentRanges<C>& ranges, std::int64_t j,
                             const math::Range<C>& other) {
    auto range = range_at(ranges, j);
    include(range, other);
    put_column(ranges, j, range);
  }

  void quantize_tile(const planq::Columns& columns, const Offsets& origin, std::int64_t width,
                     std::int64_t first, std::int64_t last, bool vector,
                     const Segments<C>& segments) const {
    // A tile that stays in a cache leaves time to fetch the one beside it.
    const std::int64_t bytes = width * plan_.element_bytes;
    const bool cached = (last - first) * bytes <= kTileBytes;
    for_each_piece(
        columns.rows, first, last, [&](const Offsets& at, std::int64_t count, const Axis& axis) {
          const Rows rows = {width, count, axis.stride[kInput]};
          const std::int64_t ahead = cached ? bytes : ahead_of(rows);
          quantize_columns(origin + at, rows, axis.stride[kOutput], ahead, vector, segments);
        });
    if (streaming_) host::stream_fence();
  }

  void column_tile(const planq::Columns& columns, const Offsets& at, std::int64_t width) const {
    Segments<C> segments;
    const std::int64_t rows = columns.row_count;
    measure_tile(columns, at, width, 0, rows, segments);
    const bool vector = settle(segments, width);
    write_parameters(segments, width, at, 1, 1);
    quantize_tile(columns, at, width, 0, rows, vector, segments);
  }

  // Tiles one after another, the rows of each by all threads.
  void divided_columns(const Box& box, const planq::Columns& columns) const {
    constexpr std::int64_t kUnit = kFewestColumns<C>;
    const std::int64_t pieces =
        std::min<std::int64_t>({columns.row_count, 2 * threads_, kPartials<C> / kUnit});
    const std::int64_t widest =
        std::min<std::int64_t>(kPartials<C> / pieces / kUnit * kUnit, kSegments<C>);
    for (std::int64_t batch = 0; batch < columns.batch_count; ++batch)
      for (std::int64_t j = 0; j < columns.count; j += widest)
        divided_tile(columns, tile_origin(box, columns, batch, j),
                     std::min(widest, columns.count - j), pieces);
  }

  void divided_tile(const planq::Columns& columns, const Offsets& at, std::int64_t width,
                    std::int64_t pieces) const {
    const std::int64_t rows = columns.row_count;
    const auto begin = [&](std::int64_t piece) { return piece * rows / pieces; };
    std::array<math::Range<C>, kPartials<C>> partial;
    parallel_for(threads_, pieces, 1, [&](std::int64_t first, std::int64_t last) {
      for (std::int64_t piece = first; piece < last; ++piece) {
        SegmentRanges<C> ranges;
        measure_tile(columns, at, width, begin(piece), begin(piece + 1), ranges);
        for (std::int64_t j = 0; j < width; ++j) partial[piece * width + j] = range_at(ranges, j);
      }
    });
    Segments<C> segments;
    for (std::int64_t j = 0; j < width; ++j) {
      auto range = no_range<C>(signs());
      for (std::int64_t piece = 0; piece < pieces; ++piece)
        include(range, partial[piece * width + j]);
      put_column(segments, j, range);
    }
    const bool vector = settle(segments, width);
    write_parameters(segments, width, at, 1, 1);
    parallel_for(threads_, pieces, 1, [&](std::int64_t first, std::int64_t last) {
      quantize_tile(columns, at, width, begin(first), begin(last), vector, segments);
    });
  }

  // ---- tiles, and groups within bytes --------------------------------------------------------

  // Tiles that follow each other are taken together, row by row, as far as a second-level cache
  // holds them; so are groups whose codes share bytes, which are tiles of one row. A batch has an
  // even number of them, so it begins at an even position.
  void group_batches(const Box& box, std::int64_t size) const {
    const std::int64_t row_bytes = box.line_count * size * plan_.element_bytes;
    const std::int64_t batch =
        std::clamp<std::int64_t>(kTileBytes / row_bytes, 2, kGroupBatch) & ~1;
    const std::int64_t groups = (box.length + size - 1) / size;
    const std::int64_t batches = (groups + batch - 1) / batch;
    const std::int64_t stretch = std::min(size * batch, box.length) * box.line_count;
    const std::int64_t grain = std::max<std::int64_t>(1, kGrain / stretch);
    const std::int64_t tasks = box.count * batches;
    parallel_for(threads_, tasks, grain, [&](std::int64_t first, std::int64_t last) {
      for (std::int64_t task = first; task < last; ++task) {
        const std::int64_t group = task % batches * batch;
        const std::int64_t begin = group * size;
        Offsets at = box.origin + box.starts.offsets(task / batches);
        at.at[kInput] += begin;
        at.at[kOutput] += begin;
        at.at[kScale] += group * group_stride(kScale);
        at.at[kZeroPoint] += group * group_stride(kZeroPoint);
        group_batch(box.lines, at, std::min(size * batch, box.length - begin), size);
      }
      if (streaming_) host::stream_fence();
    });
  }

  std::int64_t group_stride(Operand operand) const {
    return operands_[operand].strides[fields_.shape.rank - 1];
  }

  void group_batch(const Space& rows, const Offsets& at, std::int64_t length,
                   std::int64_t size) const {
    Segments<C> segments;
    const std::int64_t count = (length + size - 1) / size;
    const bool tiles = rows.rank > 0;
    const std::int64_t ahead =
        tiles ? kAheadRows * rows.axes[0].stride[kInput] * plan_.element_bytes : kAheadBytes;
    measure_groups(at.at[kInput], length, size, ahead, segments);
    for (std::int64_t row = 1; row < rows.size(); ++row) {
      SegmentRanges<C> more;
      measure_groups(at.at[kInput] + rows.offsets(row).at[kInput], length, size, ahead, more);
      for (std::int64_t j = 0; j < count; ++j) include_column(segments, j, range_at(more, j));
    }
    const bool vector = settle(segments, count);
    write_parameters(segments, count, at, group_stride(kScale), group_stride(kZeroPoint));
    // Tiles that stay in a cache leave time to fetch the ones beside them.
    const std::int64_t beside = tiles ? length * plan_.element_bytes : kAheadBytes;
    for (std::int64_t row = 0; row < rows.size(); ++row)
      quantize_groups(at + rows.offsets(row), length, size, beside, vector, segments);
  }

  // The ranges of the groups of a row, of which the last may be shorter.
  void measure_groups(std::int64_t at, std::int64_t length, std::int64_t size, std::int64_t ahead,
                      SegmentRanges<C>& ranges) const {
    const std::int64_t whole = length / size, rest = length % size;
    measure_rows(at, {size, whole, size}, {0, 1}, ahead, ranges);
    if (rest > 0)
      measure_rows(at + whole * size, {rest, 1, 0}, {static_cast<int>(whole), 1}, ahead, ranges);
  }

  void quantize_groups(Offsets at, std::int64_t length, std::int64_t size, std::int64_t ahead,
                       bool vector, const Segments<C>& segments) const {
    if (shares_bytes(fields_))
      return quantize_within_bytes(at, length, size, ahead, vector, segments);
    const std::int64_t whole = length / size, rest = length % size;
    quantize_rows(at, {size, whole, size}, {0, 1}, size, ahead, vector, segments);
    at.at[kInput] += whole * size;
    at.at[kOutput] += whole * size;
    if (rest > 0)
      quantize_rows(at, {rest, 1, 0}, {static_cast<int>(whole), 1}, 0, ahead, vector, segments);
  }

  // The codes are made group by group and packed together.
  void quantize_within_bytes(const Offsets& at, std::int64_t length, std::int64_t size,
                             std::int64_t ahead, bool vector, const Segments<C>& segments) const {
    staged({length, 1, 0}, 0, at,
           [&](std::int64_t from, Rows part, std::int64_t, std::uint8_t* codes, std::int64_t) {
             const std::int64_t begin = from - at.at[kInput], end = begin + part.length;
             for (std::int64_t i = begin; i < end;) {
               const std::int64_t group = i / size, stop = std::min(end, (group + 1) * size);
               row_codes(at.at[kInput] + i, {stop - i, 1, 0}, {static_cast<int>(group), 1},
                         codes + (i - begin), 0, {ahead, false}, vector, segments);
               i = stop;
             }
           });
  }

  // ---- nothing to quantize -------------------------------------------------------------------

  void write_empty(const Box& box) const {
    Segments<C> segments;
    segments.low[0] = segments.high[0] = C{0};
    segments.special[0] = false;
    settle(segments, 1);
    for (std::int64_t i = 0; i < box.count; ++i)
      write_parameters(segments, 1, box.origin + box.starts.offsets(i), 0, 0);
  }

  const Prepared<C>& plan_;
  const Fields fields_;
  const Operands& operands_;
  const int threads_;
  bool streaming_;
};

}  // namespace planq::dynamic_range_quantize
