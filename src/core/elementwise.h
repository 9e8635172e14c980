// Tensors of one shape, element by element, with the parameters of a scope: how rows of consecutive
// elements lie in memory, and which of them share a parameter.
#pragma once

#include <array>
#include <cstdint>

#include "core/index_space.h"
#include "core/operands.h"
#include "core/scope.h"

namespace planq {

// Operands of an elementwise operation as a space knows them: tensors first, then parameters.
inline constexpr int kElementTensors = 3;
inline constexpr int kElementScale = 3, kElementZeroPoint = 4, kElementOperands = 5;
using ElementAxis = AxisOf<kElementOperands>;
using ElementOffsets = OffsetsOf<kElementOperands>;

// One operand: where it is, and whether two of its elements share a byte. Offsets count elements.
struct ElementOperand {
  const OperandView* view = nullptr;  // null: there is none
  bool four_bit = false;
};

struct ElementLayout {
  IndexSpaceOf<kElementOperands> rows;
  std::int64_t length = 1;   // elements of a row, consecutive in every tensor
  std::int64_t divisor = 1;  // consecutive elements that share a parameter
  std::int64_t step = 0;     // from their parameter to the next one; 0 if a row has only one

  std::int64_t elements() const { return rows.size() * length; }
};

namespace detail {

// Elements by which a step along an axis moves in a tensor.
inline std::int64_t tensor_stride(const ElementOperand& operand, const Shape& shape, int axis) {
  if (!operand.view) return 0;
  if (axis == shape.rank - 1 && shape[axis] != 1) return 1;
  return operand.view->strides[axis] * (operand.four_bit ? 2 : 1);
}

// The same in a parameter tensor, per `divisor` elements.
inline std::int64_t parameter_stride(const ElementOperand& operand, const Shape& parameters,
                                     int along) {
  if (!operand.view || along < 0 || parameters[along] == 1) return 0;
  const bool last = along == parameters.rank - 1;
  return last ? 1 : operand.view->strides[along] * (operand.four_bit ? 2 : 1);
}

// Makes a row of the innermost axis and the rows before it, as long as all operands go on evenly.
// Of parameters that a row has one of, that is a stride of 0, in the scale and in the zero point.
inline void absorb_rows(ElementLayout& layout, const std::array<ElementOperand, 5>& operands) {
  while (layout.rows.rank > 0) {
    const ElementAxis& inner = layout.rows.axes[layout.rows.rank - 1];
    bool even = true;
    for (int i = 0; i < kElementTensors; ++i)
      even = even && (!operands[i].view || inner.stride[i] == layout.length);
    const std::int64_t groups = layout.step == 0 ? 0 : layout.length / layout.divisor;
    even = even && (layout.step == 0 || layout.length % layout.divisor == 0);
    for (const int i : {kElementScale, kElementZeroPoint})
      even = even && (!operands[i].view || inner.stride[i] == groups * layout.step);
    if (!even || inner.divisor != 1) return;
    layout.length *= inner.extent;
    layout.rows.rank -= 1;
  }
}

}  // namespace detail

// `operands`: tensors, scale, zero point. Rows are numbered in the logical order of elements.
// `whole` keeps the rows of the tensor, for an operand that has a value for each column.
inline ElementLayout element_layout(const Shape& shape, const Scope& scope,
                                    const std::array<ElementOperand, 5>& operands,
                                    bool whole = false) {
  const Shape parameters = parameter_shape(shape, scope);
  const int last = shape.rank - 1;
  ElementLayout layout;
  for (int i = 0; i < last; ++i) {
    const ParameterAxis parameter = parameter_axis(shape, scope, i);
    ElementAxis axis;
    axis.extent = shape[i];
    for (int k = 0; k < kElementTensors; ++k)
      axis.stride[k] = detail::tensor_stride(operands[k], shape, i);
    for (const int k : {kElementScale, kElementZeroPoint})
      axis.stride[k] = detail::parameter_stride(operands[k], parameters, parameter.axis);
    if (parameter.divisor > 1 && parameters[parameter.axis] > 1) {
      axis.divisor = parameter.divisor;
      axis.grouped = 1u << kElementScale | 1u << kElementZeroPoint;
    }
    layout.rows.append(axis);
  }
  layout.rows.merge();
  layout.length = shape[last];
  const ParameterAxis parameter = parameter_axis(shape, scope, last);
  const bool several = parameter.axis >= 0 && parameters[parameter.axis] > 1;
  layout.divisor = several ? parameter.divisor : layout.length;
  layout.step = several ? 1 : 0;
  if (!whole) detail::absorb_rows(layout, operands);
  if (layout.step == 0) layout.divisor = layout.length;
  return layout;
}

}  // namespace planq
