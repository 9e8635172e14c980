// sample: an index of each row, drawn by what the row's elements weigh as logits. Each row has a
// temperature, filters and a random number of its own.
#pragma once

#include "core/operands.h"
#include "core/registry.h"
#include "core/rejects.h"

namespace planq::sample {

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
enum Operand : int {
  kInput,
  kSeed,
  kPosition,
  kOutput,
  kTemperature,
  kTopK,
  kTopP,
  kMinP,
  kInvalid
};

// A number for each row, which the caller may leave out.
constexpr auto setting(const char* name, DType type) {
  return tensor(name, Role::Input, type, leading("shape")).optional();
}
inline constexpr auto kOperands =
    operands(kFields, {{"input", Role::Input, "input_dtype", "shape"},
                       {"seed", Role::Input, DType::Int64, leading("shape")},
                       {"position", Role::Input, DType::Int64, leading("shape")},
                       {"output", Role::Output, "output_dtype", leading("shape")},
                       setting("temperature", DType::Float32),
                       setting("top_k", DType::Int32),
                       setting("top_p", DType::Float32),
                       setting("min_p", DType::Float32),
                       tensor("invalid", Role::Output, DType::Int64, 1).optional()});

// All kernels promise the same.
inline constexpr Guarantee kGuarantee = {
    .determinism = Determinism::BitExact,
    .math = MathPrecision::F32,
    .accumulator = DType::Int64,
    .rounding = Rounding::NearestEven,
    .max_ulp = 0,
    .error_bound = kNoErrorBound,
    .batch_invariant = true,
    .basis = "element by element to integer weights; sums, order and draw of integers"};

template <DType kInputType>
Reason rejects(const Descriptor& descriptor, const Device&) {
  return expect(ReasonKind::DType, "input_dtype", kInputType, descriptor.as<Fields>().input_dtype);
}

}  // namespace planq::sample
