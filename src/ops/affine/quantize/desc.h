// quantize: codes of elements under a scale and a zero point that are given. The arithmetic is in
// affine/affine.h.
#pragma once

#include "core/operands.h"
#include "core/registry.h"
#include "core/scope.h"
#include "ops/affine/scale.h"

namespace planq::quantize {

struct Fields {
  Shape shape;
  DType input_dtype = DType::Unset;
  DType output_dtype = DType::Unset;
  Scope scope;
  Mode mode = Mode::Symmetric;
  double q_min = kUnsetBound;
  double q_max = kUnsetBound;
  DType scale_dtype = DType::Unset;
  DType zero_point_dtype = DType::Unset;
  Quotient quotient = Quotient::Divide;
  NonFinite nonfinite = NonFinite::Propagate;
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
    PLANQ_FIELD(Fields, scale_dtype).from("scale.dtype"),
    PLANQ_FIELD(Fields, zero_point_dtype).from("zero_point.dtype"),
    PLANQ_FIELD(Fields, quotient),
    PLANQ_FIELD(Fields, nonfinite),
    PLANQ_FIELD(Fields, nibble_order),
};

// Positions in Operands.
enum Operand : int { kInput, kOutput, kScale, kZeroPoint };
inline constexpr auto kOperands = operands(
    kFields, {{"input", Role::Input, "input_dtype", "shape"},
              {"output", Role::Output, "output_dtype", packed_shape("shape", "output_dtype")},
              {"scale", Role::Input, "scale_dtype", parameter_shape("shape", "scope")},
              {"zero_point", Role::Input, "zero_point_dtype",
               packed_shape(parameter_shape("shape", "scope"), "zero_point_dtype"),
               is("mode", Mode::Asymmetric)}});

template <class C>
math::AffineSpec<C> spec_of(const Fields& f) {
  return math::affine_spec<C>(f.output_dtype, f.scale_dtype, f.mode, f.quotient, f.nonfinite, true,
                              f.q_min, f.q_max);
}

}  // namespace planq::quantize
