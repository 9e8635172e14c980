// Segments of a tensor: the elements that share the parameters of a scope. A scope cuts a tensor
// into boxes of equal segments; this header says where the segments of a box begin in any number of
// operands, which lines of elements each of them consists of, and where its parameters are. Both
// backends lay out by it whatever they measure or compute segment by segment.
#pragma once

#include <algorithm>
#include <cstdint>

#include "core/index_space.h"
#include "core/scope.h"

namespace planq {

// An operand as segments see it: a tensor of the shape that is cut, or a parameter, whose shape is
// parameter_shape(). Where two codes share a byte, strides count bytes and offsets codes.
struct SegmentOperand {
  const OperandView* view = nullptr;  // nullptr: there is none, and its offsets are 0
  bool is_parameter = false;
  bool four_bit = false;

  // By how much a step along an axis of the view moves.
  std::int64_t stride(int axis, int last) const {
    if (axis == last && !is_parameter) return 1;
    return view->strides[axis] * (four_bit ? 2 : 1);
  }
};

// Segments of equal shape: `lines` of `length` consecutive elements each. `starts` numbers them as
// their parameters are, row-major. Offsets in `origin` and `starts` are those of all operands, in
// `lines` those of tensors: elements, or codes.
template <int kOperands>
struct SegmentsOf {
  static constexpr int kElements = 0;  // the operand, where there is only one

  OffsetsOf<kOperands> origin{};
  IndexSpaceOf<kOperands> starts, lines;
  std::int64_t count = 1, line_count = 1, length = 1;
  std::uint32_t tensors = 0, parameters = 0;  // operands that there are, a bit each

  std::int64_t elements() const { return line_count * length; }
};
using Segments = SegmentsOf<kIndexSpaceOperands>;

// The same segments side by side: columns, and the rows that they go down. `inner` neighbours share
// a segment; the parameters of neighbouring segments are neighbours too.
template <int kOperands>
struct ColumnsOf {
  IndexSpaceOf<kOperands> batches, rows;
  std::int64_t batch_count = 1, row_count = 1, count = 1, inner = 1;
};
using Columns = ColumnsOf<kIndexSpaceOperands>;

// At most one whole box, and one for the shorter segments at the end of each of two axes.
inline constexpr int kMaxBoxes = 4;

// Joined: lines that follow one another in all tensors are one line. Rows: each row of a segment is
// a line, whatever follows it.
enum class LineKind : bool { Joined, Rows };

namespace detail {

// Groups of one axis that have the same size: `count` of `size` elements each, from group `first`
// on, which begins at element `position`.
struct EqualGroups {
  std::int64_t first = 0, count = 0, position = 0, size = 0;
};

// The whole groups of an axis, or the shorter one behind them; or all, as if that were whole.
inline EqualGroups equal_groups(std::int64_t extent, std::int64_t size, bool rest, bool all) {
  size = std::clamp<std::int64_t>(size, 1, std::max<std::int64_t>(extent, 1));
  const std::int64_t whole = extent / size;
  if (all) return {0, groups_of(extent, size), 0, size};
  if (!rest) return {0, whole, 0, size};
  return {whole, extent % size != 0 ? 1 : 0, whole * size, extent % size};
}

template <int kOperands>
void join_lines(SegmentsOf<kOperands>& segments) {
  segments.lines.merge();
  while (segments.lines.rank > 0) {
    const auto& inner = segments.lines.axes[segments.lines.rank - 1];
    for (int i = 0; i < kOperands; ++i)
      if ((segments.tensors >> i & 1u) && inner.stride[i] != segments.length) return;
    segments.length *= inner.extent;
    --segments.lines.rank;
  }
}

}  // namespace detail

// In the place of axes: one box with all segments, as if the shorter ones were whole. Whoever asks
// for it cuts their lines.
inline constexpr unsigned kAllSegments = ~0u;

// The segments that have the whole size along every axis, except for the axes in `rests` (a bit
// each): along those, the shorter ones at the end. There may be none.
template <int kOperands>
SegmentsOf<kOperands> segments_of(const Shape& shape, const Scope& scope,
                                  const SegmentOperand (&operands)[kOperands], unsigned rests,
                                  LineKind kind = LineKind::Joined) {
  SegmentsOf<kOperands> segments;
  const int last = shape.rank - 1;
  for (int k = 0; k < kOperands; ++k)
    if (operands[k].view)
      (operands[k].is_parameter ? segments.parameters : segments.tensors) |= 1u << k;
  for (int i = 0; i <= last; ++i) {
    const ParameterAxis along = parameter_axis(shape, scope, i);
    const bool varies = along.axis >= 0;
    const auto groups = varies ? detail::equal_groups(shape[i], along.divisor, rests >> i & 1u,
                                                      rests == kAllSegments)
                               : detail::EqualGroups{0, 1, 0, shape[i]};
    AxisOf<kOperands> start, line;
    start.extent = groups.count;
    line.extent = groups.size;
    for (int k = 0; k < kOperands; ++k) {
      const SegmentOperand& operand = operands[k];
      if (!operand.view || (operand.is_parameter && !varies)) continue;
      const std::int64_t stride = operand.stride(operand.is_parameter ? along.axis : i, last);
      start.stride[k] = operand.is_parameter ? stride : stride * groups.size;
      line.stride[k] = operand.is_parameter ? 0 : stride;
      segments.origin.at[k] += stride * (operand.is_parameter ? groups.first : groups.position);
    }
    segments.starts.append(start);
    if (kind == LineKind::Rows && i == last)
      segments.length = line.extent;
    else
      segments.lines.append(line);
  }
  segments.count = segments.starts.size();
  segments.starts.merge();
  if (kind == LineKind::Joined) detail::join_lines(segments);
  segments.line_count = segments.lines.size();
  return segments;
}

// Calls visit(rests, number) for the boxes that a scope may cut a shape into: from the one of whole
// segments on, all subsets of the axes that are divided.
template <class Visit>
void for_each_rests(const Shape& shape, const Scope& scope, Visit&& visit) {
  unsigned divided = 0;
  for (int i = 0; i < shape.rank; ++i)
    if (parameter_axis(shape, scope, i).divisor > 1) divided |= 1u << i;
  int number = 0;
  for (unsigned rests = 0;; rests = (rests - divided) & divided) {
    visit(rests, number++);
    if (rests == divided) return;
  }
}

// Calls visit(segments) for each box that has segments.
template <int kOperands, class Visit>
void for_each_box(const Shape& shape, const Scope& scope,
                  const SegmentOperand (&operands)[kOperands], LineKind kind, Visit&& visit) {
  for_each_rests(shape, scope, [&](unsigned rests, int) {
    const auto segments = segments_of(shape, scope, operands, rests, kind);
    if (segments.count > 0) visit(segments);
  });
}

// False where the segments are not side by side in every operand, or where there are none: segments
// without elements lie side by side only by strides of 0.
template <int kOperands>
bool columns_of(const SegmentsOf<kOperands>& segments, ColumnsOf<kOperands>& columns) {
  const auto& starts = segments.starts;
  if (starts.rank == 0 || segments.length == 0) return false;
  if (segments.length > 1 && starts.rank > 1) return false;
  const auto& side = starts.axes[starts.rank - 1];
  for (int k = 0; k < kOperands; ++k) {
    if ((segments.tensors >> k & 1u) && side.stride[k] != segments.length) return false;
    if ((segments.parameters >> k & 1u) && side.stride[k] != 1) return false;
  }
  columns = {};
  columns.batches = starts;
  --columns.batches.rank;
  columns.batch_count = columns.batches.size();
  columns.rows = segments.lines;
  columns.row_count = segments.line_count;
  columns.inner = segments.length;
  columns.count = side.extent * segments.length;
  return true;
}

}  // namespace planq
