// pack_weight_4bit: a 4-bit weight in the order in which tensor cores take it from registers, made
// from a plain matrix, and the way back. The order itself is in ops/packing/fragment_order.h.
#pragma once

#include "core/operands.h"
#include "core/registry.h"
#include "core/scope.h"
#include "ops/packing/fragment_order.h"

namespace planq::pack_weight_4bit {

struct Fields {
  Shape weight_shape;  // (n, k)
  DType code_dtype = DType::UInt4;
  bool inverse = false;
  NibbleOrder nibble_order = NibbleOrder::LowFirst;  // of the plain matrix
};

inline constexpr Field kFields[] = {
    PLANQ_FIELD(Fields, weight_shape).required(),
    PLANQ_FIELD(Fields, code_dtype),
    PLANQ_FIELD(Fields, inverse),
    PLANQ_FIELD(Fields, nibble_order),
};

// Positions in Operands.
enum Operand : int { kInput, kOutput };
inline constexpr auto kOperands =
    operands(kFields, {{"input", Role::Input, when("inverse", DType::UInt8, "code_dtype"),
                        when("inverse", FragmentOrder::shape("weight_shape"),
                             packed_shape("weight_shape", "code_dtype"))},
                       {"output", Role::Output, when("inverse", "code_dtype", DType::UInt8),
                        when("inverse", packed_shape("weight_shape", "code_dtype"),
                             FragmentOrder::shape("weight_shape"))}});

// Both backends promise the same: an order, and a flipped bit.
inline constexpr Guarantee kGuarantee = {.determinism = Determinism::BitExact,
                                         .math = MathPrecision::None,
                                         .accumulator = DType::UInt8,
                                         .rounding = Rounding::None,
                                         .max_ulp = 0,
                                         .error_bound = kNoErrorBound,
                                         .batch_invariant = true,
                                         .basis = "moves bits and flips the sign bits"};

}  // namespace planq::pack_weight_4bit
