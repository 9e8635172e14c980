// arange: start, start + step, start + 2 step ... in the logical order of the
// elements.
#pragma once

#include "core/operands.h"
#include "core/registry.h"

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
inline constexpr OperandInfo kOperands[] = {
    {"output", Role::InOut},
    {"start", Role::Input, Presence::Optional, OperandKind::Scalar},
    {"step", Role::Input, Presence::Optional, OperandKind::Scalar},
};

}  // namespace planq::arange
