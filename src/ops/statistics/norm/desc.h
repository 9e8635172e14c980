// norm: the 1-, 2- or infinity-norm of all elements as one vector; sums are in the order of
// math/tree_sum.h.
#pragma once

#include "core/operands.h"
#include "core/registry.h"

namespace planq::norm {

struct Fields {
  Shape shape;
  DType input_dtype = DType::Unset;
  NormOrder p = NormOrder::Two;
};

inline constexpr Field kFields[] = {
    PLANQ_FIELD(Fields, shape).required().from("input.shape"),
    PLANQ_FIELD(Fields, input_dtype).required().from("input.dtype"),
    PLANQ_FIELD(Fields, p),
};

// Positions in Operands.
enum Operand : int { kInput, kOutput };
inline constexpr OperandInfo kOperands[] = {
    {"input", Role::Input},
    {"output", Role::Output},
};

}  // namespace planq::norm
