// moe_permute: rows of tokens in the order of the experts that a router has chosen for them, a row
// for each choice; where each expert's rows begin, and where each row went.
#pragma once

#include "core/operands.h"
#include "core/registry.h"
#include "ops/routing/pairs.h"

namespace planq::moe_permute {

struct Fields {
  Shape input_shape;  // (tokens, width)
  DType input_dtype = DType::Unset;
  std::int64_t top_k = 0;
  std::int64_t experts = 0;
  DType scale_dtype = DType::Unset;
};

inline constexpr Field kFields[] = {
    PLANQ_FIELD(Fields, input_shape).required().from("input.shape"),
    PLANQ_FIELD(Fields, input_dtype).required().from("input.dtype"),
    PLANQ_FIELD(Fields, top_k).required(),
    PLANQ_FIELD(Fields, experts).required(),
    PLANQ_FIELD(Fields, scale_dtype).from("scale.dtype"),
};

// Positions in Operands.
enum Operand : int {
  kInput,
  kExpertIndex,
  kScale,
  kOutput,
  kExpertOffset,
  kDestination,
  kPermutedScale,
};
inline constexpr Rule kTokens = axis_of("input_shape", 0);
inline constexpr auto kOperands = operands(
    kFields,
    {{"input", Role::Input, "input_dtype", "input_shape"},
     {"expert_index", Role::Input, DType::Int32, axes(kTokens, "top_k")},
     {"scale", Role::Input, "scale_dtype", kTokens, is_set("scale_dtype")},
     {"output", Role::Output, "input_dtype", axes(kTokens, "top_k", last_of("input_shape"))},
     {"expert_offset", Role::Output, DType::Int32, Rule("experts") + 1},
     {"destination", Role::Output, DType::Int32, axes(kTokens, "top_k")},
     {"permuted_scale", Role::Output, "scale_dtype", axes(kTokens, "top_k"),
      is_set("scale_dtype")}});

// A pair's sort key: its expert, or `experts` where the index names none of them.
PLANQ_HD std::uint32_t key_of(std::int32_t expert, std::uint32_t experts) {
  const auto key = static_cast<std::uint32_t>(expert);
  return key < experts ? key : experts;
}

// All kernels promise the same.
inline constexpr Guarantee kGuarantee = {.determinism = Determinism::BitExact,
                                         .math = MathPrecision::None,
                                         .accumulator = DType::Int32,
                                         .rounding = Rounding::None,
                                         .max_ulp = 0,
                                         .error_bound = kNoErrorBound,
                                         .batch_invariant = true,
                                         .basis = "a stable sort by integers; rows are moved"};

}  // namespace planq::moe_permute
