// Tensors as one sequence of elements, which are numbered in the order of the axes, whatever their
// strides. A block is a span of consecutive numbers: blocks go on across the ends of rows, and the
// last one may be shorter. 4-bit codes share bytes in the same order, two neighbours each.
#pragma once

#include <cstdint>

#include "core/operands.h"
#include "core/scope.h"

namespace planq {

// The shape of memory that holds the codes of a tensor, and of codes that are flat of any type.
constexpr Rule codes_shape(const char* tensor, const char* codes) {
  return when(is(codes, is_four_bit), groups_of(elements_of(tensor), 2), tensor);
}
constexpr Rule flat_codes_shape(const char* tensor, const char* codes) {
  return packed_shape(elements_of(tensor), codes);
}

// The elements [first, last) of a block.
struct BlockSpan {
  std::int64_t first, last;
};
constexpr BlockSpan block_span(std::int64_t block, std::int64_t size, std::int64_t elements) {
  const std::int64_t first = block * size;
  return {first, elements - first < size ? elements : first + size};
}

}  // namespace planq
