// multiply: products of elements, of one type, in place if wanted.
#pragma once

#include "core/operands.h"
#include "core/registry.h"

namespace planq::multiply {

struct Fields {
  Shape shape;
  DType input_dtype = DType::Unset;
};

inline constexpr Field kFields[] = {
    PLANQ_FIELD(Fields, shape).required().from("input.shape"),
    PLANQ_FIELD(Fields, input_dtype).required().from("input.dtype"),
};

// Positions in Operands.
enum Operand : int { kInput, kOther, kOutput };
inline constexpr auto kOperands = operands(
    kFields, {{"input", Role::Input, "input_dtype", "shape"},
              {"other", Role::Input, "input_dtype", "shape"},
              tensor("output", Role::Output, "input_dtype", "shape").in_place_of("input")});

}  // namespace planq::multiply
