// pack_int4: 4-bit codes that have a byte each become two codes a byte, along any axis. The order
// of the nibbles is the descriptor's; the arithmetic is in math/nibbles.h.
#pragma once

#include <string>

#include "core/operands.h"
#include "core/registry.h"
#include "ops/packing/nibble_pairs.h"

namespace planq::pack_int4 {

struct Fields {
  Shape shape;  // of the codes
  DType output_dtype = DType::Int4;
  std::int64_t axis = -1;
  NibbleOrder nibble_order = NibbleOrder::LowFirst;
};

inline constexpr Field kFields[] = {
    PLANQ_FIELD(Fields, shape).required().from("input.shape"),
    PLANQ_FIELD(Fields, output_dtype),
    PLANQ_FIELD(Fields, axis),
    PLANQ_FIELD(Fields, nibble_order),
};

// Positions in Operands.
enum Operand : int { kInput, kOutput };
inline constexpr auto kOperands =
    operands(kFields, {{"input", Role::Input, byte_dtype("output_dtype"), "shape"},
                       {"output", Role::Output, packed_dtype("output_dtype", "shape", "axis"),
                        packed_along("shape", "axis")}});

// Both backends promise the same: nothing is computed.
inline constexpr Guarantee kGuarantee = {.determinism = Determinism::BitExact,
                                         .math = MathPrecision::None,
                                         .accumulator = DType::UInt8,
                                         .rounding = Rounding::None,
                                         .max_ulp = 0,
                                         .error_bound = kNoErrorBound,
                                         .batch_invariant = true,
                                         .basis = "moves bits; no arithmetic"};

template <DType kOutput>
Reason rejects(const Descriptor& descriptor, const Device&) {
  const DType asked = descriptor.as<Fields>().output_dtype;
  if (asked == kOutput) return Reason::accept();
  return Reason::refuse(ReasonKind::DType, "computes output_dtype ", name_of(kOutput), ", not ",
                        name_of(asked));
}

}  // namespace planq::pack_int4
