// Where segments lie. Each launch is one layout, or more where the last groups or tiles are
// smaller: the points at which parameters are, and the elements that belong to one point.
#pragma once

#include <algorithm>
#include <cstdint>

#include "core/space.h"
#include "ops/affine/dynamic_range_quantize/desc.h"

namespace planq::dynamic_range_quantize {

// Offsets in `points` and `members` count elements of input, scale and zero_point, and codes of
// output: two codes to a byte where they have four bits.
struct Layout {
  Offsets origin{};
  Space points;
  Space members;             // rows, each of `length` elements
  std::int64_t length = 1;   // contiguous elements that share a point; 1 if columns > 0
  std::int64_t columns = 0;  // > 0: as many points as that lie beside each other in every row

  std::int64_t elements() const {
    return points.size() * members.size() * length * std::max<std::int64_t>(columns, 1);
  }
};

// A stretch of an axis that is cut into groups: `count` groups of `size` elements, of which the
// first is group `group` and begins at position `position`.
struct GroupPart {
  std::int64_t group = 0, count = 0, position = 0, size = 0;
};

class LayoutBuilder {
 public:
  LayoutBuilder(const Fields& fields, const Operands& operands)
      : fields_(fields), operands_(operands) {}

  // `part` is of the axis that is cut; `rows`, of tiles, is of the axis before it.
  Layout build(const GroupPart& part = {}, const GroupPart& rows = {}) const {
    Layout layout = place_all(part, rows);
    layout.members.merge();
    if (layout.columns == 0) take_length(layout);
    return layout;
  }
  // The same, and `length` is that of one row whatever follows it.
  Layout build_rows(const GroupPart& part, const GroupPart& rows) const {
    Layout layout = place_all(part, rows);
    take_length(layout);
    return layout;
  }

 private:
  Layout place_all(const GroupPart& part, const GroupPart& rows) const {
    Layout layout;
    const int last = fields_.shape.rank - 1;
    for (int i = 0; i < last; ++i) place(layout, i, is_tile_rows(i) ? rows : part);
    if (last >= 0) place_last(layout, part);
    layout.points.merge();
    return layout;
  }
  std::int64_t input_stride(int axis) const {
    return axis + 1 == fields_.shape.rank && fields_.shape[axis] != 1
               ? 1
               : operands_[kInput].strides[axis];
  }
  std::int64_t code_stride(int axis) const {
    if (axis + 1 == fields_.shape.rank) return 1;
    return operands_[kOutput].strides[axis] * (is_four_bit(fields_.output_dtype) ? 2 : 1);
  }
  // How far a step along `axis` moves in a parameter tensor; 0 where it stays at its point.
  std::int64_t parameter_stride(int axis, Operand parameter) const {
    const int along = parameter_axis(fields_.shape, fields_.scope, axis).axis;
    return along < 0 ? 0 : operands_[parameter].strides[along];
  }
  bool is_point_axis(int axis) const {
    return parameter_axis(fields_.shape, fields_.scope, axis).axis >= 0;
  }
  bool is_tile_rows(int axis) const {
    return fields_.scope.kind == ScopeKind::Block && axis == fields_.shape.rank - 2;
  }
  bool is_cut(int axis) const {
    if (fields_.scope.kind == ScopeKind::Block) return axis >= fields_.shape.rank - 2;
    return fields_.scope.kind == ScopeKind::Group && axis == fields_.scope.axis;
  }
  Axis axis_of(int axis, bool point) const {
    Axis result;
    result.extent = fields_.shape[axis];
    result.stride = {input_stride(axis), code_stride(axis),
                     point ? parameter_stride(axis, kScale) : 0,
                     point ? parameter_stride(axis, kZeroPoint) : 0};
    return result;
  }

  void place(Layout& layout, int axis, const GroupPart& part) const {
    if (is_cut(axis)) {
      place_group(layout, axis, part);
    } else if (is_point_axis(axis)) {
      layout.points.append(axis_of(axis, true));
    } else {
      layout.members.append(axis_of(axis, false));
    }
  }

  void place_group(Layout& layout, int axis, const GroupPart& part) const {
    Axis groups = axis_of(axis, true), inside = axis_of(axis, false);
    inside.extent = part.size;
    groups.extent = part.count;
    for (const int operand : {kInput, kOutput}) {
      layout.origin.at[operand] += part.position * groups.stride[operand];
      groups.stride[operand] *= part.size;
    }
    for (const int operand : {kScale, kZeroPoint})
      layout.origin.at[operand] += part.group * groups.stride[operand];
    layout.points.append(groups);
    layout.members.append(inside);
  }

  // Points beside each other are columns, walked by the vector loops; a single column is no more
  // than its rows.
  void place_last(Layout& layout, const GroupPart& part) const {
    const int last = fields_.shape.rank - 1;
    if (is_point_axis(last) && !is_cut(last) && fields_.shape[last] != 1) {
      layout.columns = fields_.shape[last];
    } else {
      place(layout, last, part);
    }
  }

  void take_length(Layout& layout) const {
    if (layout.members.rank == 0) return;
    const Axis& inner = layout.members.axes[layout.members.rank - 1];
    if (inner.stride[kInput] != 1 || inner.stride[kOutput] != 1) return;
    layout.length = inner.extent;
    layout.members.rank -= 1;
  }

  const Fields& fields_;
  const Operands& operands_;
};

// Calls visit(offsets, count, axis) for the stretches of [first, last) that one axis spans.
template <class Visit>
void walk(const Space& space, std::int64_t first, std::int64_t last, Visit&& visit) {
  if (space.rank == 0) {
    if (first < last) visit(Offsets{}, std::int64_t{1}, Axis{});
    return;
  }
  const Axis& inner = space.axes[space.rank - 1];
  while (first < last) {
    const std::int64_t count = std::min(inner.extent - first % inner.extent, last - first);
    visit(space.offsets(first), count, inner);
    first += count;
  }
}

inline Offsets operator+(Offsets a, const Offsets& b) {
  for (int operand = 0; operand < kSpaceOperands; ++operand) a.at[operand] += b.at[operand];
  return a;
}
inline Offsets step(Offsets at, const Axis& axis, std::int64_t count) {
  for (int operand = 0; operand < kSpaceOperands; ++operand)
    at.at[operand] += count * axis.stride[operand];
  return at;
}

}  // namespace planq::dynamic_range_quantize
