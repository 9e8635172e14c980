// fill: one number into every element.
#pragma once

#include "core/operands.h"
#include "core/registry.h"
#include "ops/memory/numbers.h"

namespace planq::fill {

struct Fields {
  Shape shape;
  DType output_dtype = DType::Unset;
};

inline constexpr Field kFields[] = {
    PLANQ_FIELD(Fields, shape).required().from("output.shape"),
    PLANQ_FIELD(Fields, output_dtype).required().from("output.dtype"),
};

// Positions in Operands.
enum Operand : int { kOutput, kValue };
inline constexpr auto kOperands =
    operands(kFields, {{"output", Role::InOut, "output_dtype", "shape"},
                       scalar("value", Role::Input, memory::scalar_dtype("output_dtype"))});

}  // namespace planq::fill
