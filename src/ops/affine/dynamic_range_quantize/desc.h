// dynamic_range_quantize: measure the range of every segment, derive scale and zero point, and
// quantize, in one operation. This header is the operator's contract: its fields, its operands and
// what a descriptor may say. The arithmetic is in affine/scale.h.
#pragma once

#include "core/operands.h"
#include "core/registry.h"
#include "core/scope.h"
#include "ops/affine/scale.h"

namespace planq::dynamic_range_quantize {

struct Fields {
  Shape shape;
  DType input_dtype = DType::Unset;
  DType output_dtype = DType::Unset;
  Scope scope = {ScopeKind::Token};
  Mode mode = Mode::Symmetric;
  double q_min = kUnsetBound;
  double q_max = kUnsetBound;
  DType scale_dtype = DType::Unset;
  Quotient quotient = Quotient::Divide;
  NonFinite nonfinite = NonFinite::Propagate;
  bool include_zero = true;
  NibbleOrder nibble_order = NibbleOrder::LowFirst;
};

inline constexpr Field kFields[] = {
    PLANQ_FIELD(Fields, shape).required().from("input.shape"),
    PLANQ_FIELD(Fields, input_dtype).required().from("input.dtype"),
    PLANQ_FIELD(Fields, output_dtype).required(),
    PLANQ_FIELD(Fields, scope),
    PLANQ_FIELD(Fields, mode),
    PLANQ_FIELD(Fields, q_min),
    PLANQ_FIELD(Fields, q_max),
    PLANQ_FIELD(Fields, scale_dtype),
    PLANQ_FIELD(Fields, quotient),
    PLANQ_FIELD(Fields, nonfinite),
    PLANQ_FIELD(Fields, include_zero),
    PLANQ_FIELD(Fields, nibble_order),
};

// Positions in Operands.
enum Operand : int { kInput, kOutput, kScale, kZeroPoint };
inline constexpr OperandInfo kOperands[] = {
    {"input", Role::Input},
    {"output", Role::Output},
    {"scale", Role::Output},
    {"zero_point", Role::Output, Presence::ByField},
};

inline Shape parameter_shape(const Fields& fields) {
  return planq::parameter_shape(fields.shape, fields.scope);
}

// The same descriptor with groups in the place of tiles of one row or one column.
inline Fields with_groups(Fields f) {
  f.scope = planq::with_groups(f.shape, f.scope);
  return f;
}

template <class C>
math::AffineSpec<C> spec_of(const Fields& f) {
  return math::affine_spec<C>(f.output_dtype, f.scale_dtype, f.mode, f.quotient, f.nonfinite,
                              f.include_zero, f.q_min, f.q_max);
}

}  // namespace planq::dynamic_range_quantize
