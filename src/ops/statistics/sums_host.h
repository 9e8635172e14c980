// Sums and maxima over a tensor on the host: threads measure leaves of kSumLeaf elements, and the
// caller's thread adds the leaves up.
#pragma once

#include <cstdint>

#include "core/operands.h"
#include "core/scratch.h"
#include "math/formats.h"
#include "ops/statistics/sums.h"

namespace planq::host {

// Room for a number a leaf.
template <class C>
C* book_leaves(const Shape& shape, Scratch& scratch) {
  return scratch.take<C>(static_cast<std::size_t>(sum_leaves(shape.elements())));
}

// Fields has shape and input_dtype.
template <class Fields, class T>
std::size_t leaves_workspace(const Descriptor& descriptor, const Device&) {
  Scratch counting;
  book_leaves<math::Compute<T>>(descriptor.as<Fields>().shape, counting);
  return counting.bytes();
}

// 0 without elements. `leaves` is from book_leaves().
template <class T>
math::Compute<T> measure_tensor(Measure measure, const OperandView& input, const Shape& shape,
                                math::Compute<T>* leaves, int threads);

}  // namespace planq::host
