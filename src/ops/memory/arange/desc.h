// arange: start, start + step, start + 2 step ... in the logical order of the
// elements.
#pragma once

#include "core/operands.h"
#include "core/registry.h"
#include "ops/memory/numbers.h"

namespace planq::arange {

struct Fields {
  Shape shape;
  DType output_dtype = DType::Unset;
};

inline constexpr Field kFields[] = {
    PLANQ_FIELD(Fields, shape).required().from("output.shape"),
    PLANQ_FIELD(Fields, output_dtype).required().from("output.dtype"),
};

// Positions in Operands.
enum Operand : int { kOutput, kStart, kStep };
inline constexpr auto kOperands = operands(
    kFields, {{"output", Role::InOut, "output_dtype", "shape"},
              scalar("start", Role::Input, memory::scalar_dtype("output_dtype")).optional(),
              scalar("step", Role::Input, memory::scalar_dtype("output_dtype")).optional()});

}  // namespace planq::arange
