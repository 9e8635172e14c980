// moe_unpermute: for each token the weighted sum of the rows that its experts made, which stand
// where moe_permute has put their inputs.
#pragma once

#include "core/operands.h"
#include "core/registry.h"
#include "core/rejects.h"
#include "ops/routing/pairs.h"

namespace planq::moe_unpermute {

struct Fields {
  Shape input_shape;  // (tokens, top_k, width)
  DType input_dtype = DType::Unset;
  DType output_dtype = DType::Unset;

  std::int64_t tokens() const { return input_shape[0]; }
  std::int64_t top_k() const { return input_shape[1]; }
  std::int64_t width() const { return input_shape[2]; }
  std::int64_t pairs() const { return tokens() * top_k(); }
};

inline constexpr Field kFields[] = {
    PLANQ_FIELD(Fields, input_shape).required().from("input.shape"),
    PLANQ_FIELD(Fields, input_dtype).required().from("input.dtype"),
    PLANQ_FIELD(Fields, output_dtype).required(),
};

// Positions in Operands.
enum Operand : int { kInput, kDestination, kWeight, kOutput };
inline constexpr auto kOperands =
    operands(kFields, {{"input", Role::Input, "input_dtype", "input_shape"},
                       {"destination", Role::Input, DType::Int32, leading("input_shape")},
                       {"weight", Role::Input, DType::Float32, leading("input_shape")},
                       {"output", Role::Output, "output_dtype",
                        axes(axis_of("input_shape", 0), last_of("input_shape"))}});

// All kernels promise the same.
inline constexpr Guarantee kGuarantee = {
    .determinism = Determinism::BitExact,
    .math = MathPrecision::F32,
    .accumulator = DType::Float32,
    .rounding = Rounding::NearestEven,
    .max_ulp = 0,
    .error_bound = kNoErrorBound,
    .batch_invariant = true,
    .basis = "one fma a row in the order of the ranks; one rounding at the end; no atomics"};

template <DType kInputType, DType kOutputType>
Reason rejects(const Descriptor& descriptor, const Device&) {
  const Fields& f = descriptor.as<Fields>();
  const Reason reason = expect(ReasonKind::DType, "input_dtype", kInputType, f.input_dtype);
  if (!reason.accepted()) return reason;
  return expect(ReasonKind::DType, "output_dtype", kOutputType, f.output_dtype);
}

}  // namespace planq::moe_unpermute
