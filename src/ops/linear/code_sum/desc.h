// code_sum: the sums of codes along one of the two last axes, in int32: what a gemm with zero
// points needs of its operands.
#pragma once

#include "core/scope.h"
#include "ops/linear/checks.h"

namespace planq::code_sum {

struct Fields {
  Shape shape;
  DType input_dtype = DType::Int8;
  std::int64_t axis = -1;
};

inline constexpr Field kFields[] = {
    PLANQ_FIELD(Fields, shape).required().from("input.shape"),
    PLANQ_FIELD(Fields, input_dtype),
    PLANQ_FIELD(Fields, axis),
};

// Positions in Operands.
enum Operand : int { kInput, kOutput };
inline constexpr auto kOperands =
    operands(kFields, {{"input", Role::Input, "input_dtype", packed_shape("shape", "input_dtype")},
                       {"output", Role::Output, DType::Int32,
                        when(is_last("axis", "shape"), leading("shape"),
                             axes(leading("shape", 2), last_of("shape")))}});

}  // namespace planq::code_sum
