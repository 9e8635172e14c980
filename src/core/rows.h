// What an operator's results have to do with rows, which are all axes but the last: whether a row
// of the results is made of that row of the operands alone, whatever lies beside it.
#pragma once

#include <cstdint>

#include "core/scope.h"
#include "core/status.h"

namespace planq::rows {

template <class... Pieces>
Reason share(const Pieces&... pieces) {
  return Reason::refuse(ReasonKind::Preference, "is not batch invariant: ", pieces...);
}

// Of operators that compute each element or each row alone.
inline Reason apart(const Descriptor&) { return Reason::accept(); }

// Of operators whose results are of all elements together.
inline Reason together(const Descriptor&) { return share("results are of all rows together"); }

// Parameters that are measured of the segments of a scope: a row has its own where a step to the
// next row is a step to the next parameter.
inline Reason of_scope(const Shape& shape, const Scope& scope) {
  for (int axis = 0; axis < shape.rank - 1; ++axis) {
    const ParameterAxis at = parameter_axis(shape, scope, axis);
    if (at.axis < 0 || at.divisor != 1)
      return share("rows share what the scope ", name_of(scope.kind), " measures");
  }
  return Reason::accept();
}

// Pieces of consecutive elements that are measured: none crosses rows where rows are whole pieces.
inline Reason of_pieces(const Shape& shape, std::int64_t size) {
  if (shape.rank < 2 || shape.last() % size == 0) return Reason::accept();
  return share("rows of ", shape.last(), " elements share groups of ", size);
}

// Draws that go by an element's index in the tensor change with the number of rows before it.
inline Reason of_draws(const Shape& shape, Rounding rounding) {
  if (shape.rank < 2 || rounding != Rounding::Stochastic) return Reason::accept();
  return share("draws go by an element's index in the whole tensor");
}

// Codes of 4 bits that are packed without regard to rows: two rows share a byte where rows are odd.
inline Reason of_bytes(const Shape& shape, DType codes) {
  if (shape.rank < 2 || !is_four_bit(codes) || shape.last() % 2 == 0) return Reason::accept();
  return share("rows of ", shape.last(), " codes of 4 bits share bytes");
}

// The first reason of several.
template <class... Reasons>
Reason any_of(const Reasons&... reasons) {
  Reason first = Reason::accept();
  ((first.accepted() ? void(first = reasons) : void()), ...);
  return first;
}

}  // namespace planq::rows
