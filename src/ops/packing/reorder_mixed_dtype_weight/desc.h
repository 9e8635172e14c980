// reorder_mixed_dtype_weight: the order in which CUTLASS's mixed-dtype linear layers read an int8
// or int4 weight, made from a plain matrix, and the way back. The order itself is in
// ops/packing/mixed_dtype_layout.h.
#pragma once

#include <string>

#include "core/operands.h"
#include "core/registry.h"
#include "core/scope.h"
#include "ops/packing/mixed_dtype_layout.h"

namespace planq::reorder_mixed_dtype_weight {

using mixed_dtype::inner_nibbles_swapped;
using mixed_dtype::kChunk;
using mixed_dtype::kLineBytes;
using mixed_dtype::Layout;

struct Fields {
  Shape shape;  // (K, N) of the weight
  DType input_dtype = DType::Int8;
  bool transpose = false;  // the plain matrix is (N, K)
  bool inverse = false;
};

inline constexpr Field kFields[] = {
    PLANQ_FIELD(Fields, shape).required(),
    PLANQ_FIELD(Fields, input_dtype),
    PLANQ_FIELD(Fields, transpose),
    PLANQ_FIELD(Fields, inverse),
};

// Positions in Operands.
enum Operand : int { kInput, kOutput };
constexpr Rule reordered_shape() { return packed_shape("shape", "input_dtype"); }
constexpr Rule plain_shape() {
  return packed_shape(axes(axis_of("shape", "transpose"), axis_of("shape", !Rule("transpose"))),
                      "input_dtype");
}
inline constexpr auto kOperands =
    operands(kFields, {{"input", Role::Input, when("inverse", DType::UInt8, "input_dtype"),
                        when("inverse", reordered_shape(), plain_shape())},
                       {"output", Role::Output, when("inverse", "input_dtype", DType::UInt8),
                        when("inverse", plain_shape(), reordered_shape())}});

// Both backends promise the same: an order, and a flipped bit.
inline constexpr Guarantee kGuarantee = {.determinism = Determinism::BitExact,
                                         .math = MathPrecision::None,
                                         .accumulator = DType::UInt8,
                                         .rounding = Rounding::None,
                                         .max_ulp = 0,
                                         .error_bound = kNoErrorBound,
                                         .batch_invariant = true,
                                         .basis = "moves bits and flips the sign bits"};

template <DType kDType>
Reason rejects(const Descriptor& descriptor, const Device&) {
  const DType asked = descriptor.as<Fields>().input_dtype;
  if (asked == kDType) return Reason::accept();
  return Reason::refuse(ReasonKind::DType, "computes input_dtype ", name_of(kDType), ", not ",
                        name_of(asked));
}

// The operands by what they hold. Without elements there is nothing to do.
struct Weight {
  std::int64_t rows, columns;  // K, N
  OperandView matrix, reordered;
  bool transposed;

  Weight(const Fields& fields, const Operands& operands)
      : rows(fields.shape[0]),
        columns(fields.shape[1]),
        matrix(operands[fields.inverse ? kOutput : kInput]),
        reordered(operands[fields.inverse ? kInput : kOutput]),
        transposed(fields.transpose) {}
  bool empty() const { return rows == 0 || columns == 0; }
};

}  // namespace planq::reorder_mixed_dtype_weight
