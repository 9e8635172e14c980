// argmax: where the largest element of each row is.
#pragma once

#include "core/operands.h"
#include "core/registry.h"
#include "core/rejects.h"

namespace planq::argmax {

struct Fields {
  Shape shape;  // (..., elements of a row)
  DType input_dtype = DType::Unset;
  DType output_dtype = DType::Int64;
};

inline constexpr Field kFields[] = {
    PLANQ_FIELD(Fields, shape).required().from("input.shape"),
    PLANQ_FIELD(Fields, input_dtype).required().from("input.dtype"),
    PLANQ_FIELD(Fields, output_dtype),
};

// Positions in Operands.
enum Operand : int { kInput, kOutput };
inline constexpr auto kOperands =
    operands(kFields, {{"input", Role::Input, "input_dtype", "shape"},
                       {"output", Role::Output, "output_dtype", leading("shape")}});

// All kernels promise the same.
inline constexpr Guarantee kGuarantee = {
    .determinism = Determinism::BitExact,
    .math = MathPrecision::None,
    .accumulator = DType::Int64,
    .rounding = Rounding::None,
    .max_ulp = 0,
    .error_bound = kNoErrorBound,
    .batch_invariant = true,
    .basis = "the largest of integers that no two elements of a row share"};

template <DType kInputType>
Reason rejects(const Descriptor& descriptor, const Device&) {
  return expect(ReasonKind::DType, "input_dtype", kInputType, descriptor.as<Fields>().input_dtype);
}

}  // namespace planq::argmax
