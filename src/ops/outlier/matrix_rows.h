// A tensor as a matrix: its rows are all axes but the last, in their order.
#pragma once

#include <initializer_list>

#include "core/index_space.h"

namespace planq::outlier {

// The operands of rows that every measured matrix has; further ones follow from kMatrixOther on.
enum : int { kMatrixInput, kMatrixAbsmax, kMatrixOther };

// Where each row begins in the operands, whose first axes are those of the rows.
inline IndexSpace matrix_rows(const Shape& shape, std::initializer_list<const OperandView*> views) {
  IndexSpace rows;
  for (int i = 0; i + 1 < shape.rank; ++i) {
    Axis axis;
    axis.extent = shape[i];
    std::size_t k = 0;
    for (const OperandView* view : views)
      axis.stride[k++] = view->strides[static_cast<std::size_t>(i)];
    rows.append(axis);
  }
  rows.merge();
  return rows;
}

}  // namespace planq::outlier
