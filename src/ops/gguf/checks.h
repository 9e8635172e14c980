// Checks that descriptors of several operators of the gguf family share.
#pragma once

#include <string>
#include <string_view>

#include "core/checks.h"
#include "ops/gguf/vocabulary.h"

namespace planq::checks {

// That the last axis of a shape has whole blocks of a type.
inline Fault whole_blocks(std::string_view field, const Shape& shape, GgufType type) {
  const int elements = gguf::elements_of(type);
  if (shape.last() % elements == 0) return {};
  return {std::string(field), "expected a last axis of whole blocks of " +
                                  std::to_string(elements) + " elements, as " +
                                  std::string(name_of(type)) + " has them, got " +
                                  std::to_string(shape.last()) + " elements"};
}

// The field `shape` of numbers that blocks stand for.
inline Fault shape_of_blocks(const Shape& shape, GgufType type) {
  if (Fault fault = checks::shape("shape", shape, 1); !fault.ok()) return fault;
  return whole_blocks("shape", shape, type);
}

}  // namespace planq::checks
