// dequantize: elements from codes, or from int32 accumulators, under a scale and a zero point. The
// arithmetic is in affine/affine.h.
#pragma once

#include "core/operands.h"
#include "core/registry.h"
#include "core/rejects.h"
#include "core/scope.h"
#include "ops/affine/accumulator.h"
#include "ops/affine/microscaling.h"
#include "ops/affine/scale.h"

namespace planq::dequantize {

struct Fields {
  Shape shape;
  DType input_dtype = DType::Unset;
  DType output_dtype = DType::Unset;
  Scope scope;
  Mode mode = Mode::Symmetric;
  DType scale_dtype = DType::Unset;
  DType zero_point_dtype = DType::Unset;
  NibbleOrder nibble_order = NibbleOrder::LowFirst;
  DType bias_dtype = DType::Unset;
  Convention convention = Convention::Planq;
};

inline constexpr Field kFields[] = {
    PLANQ_FIELD(Fields, shape).required().from("input.shape"),
    PLANQ_FIELD(Fields, input_dtype).required(),
    PLANQ_FIELD(Fields, output_dtype).required(),
    PLANQ_FIELD(Fields, scope),
    PLANQ_FIELD(Fields, mode),
    PLANQ_FIELD(Fields, scale_dtype).from("scale.dtype"),
    PLANQ_FIELD(Fields, zero_point_dtype).from("zero_point.dtype"),
    PLANQ_FIELD(Fields, nibble_order),
    PLANQ_FIELD(Fields, bias_dtype).from("bias.dtype"),
    PLANQ_FIELD(Fields, convention),
};

// Positions in Operands.
enum Operand : int { kInput, kOutput, kScale, kZeroPoint, kColumnScale, kBias, kTensorScale };
inline constexpr auto kOperands = operands(
    kFields,
    {{"input", Role::Input, "input_dtype", packed_shape("shape", "input_dtype")},
     {"output", Role::Output, "output_dtype", "shape"},
     {"scale", Role::Input, "scale_dtype", parameter_shape("shape", "scope")},
     {"zero_point", Role::Input, "zero_point_dtype",
      packed_shape(parameter_shape("shape", "scope"), "zero_point_dtype"),
      is("mode", Mode::Asymmetric)},
     {"column_scale", Role::Input, "scale_dtype", last_of("shape"), is("scope", ScopeKind::Pair)},
     {"bias", Role::Input, "bias_dtype", last_of("shape"), is_set("bias_dtype")},
     {"tensor_scale", Role::Input, DType::Float32, 1, is("convention", Convention::Nvfp4)}});

// A code or an accumulator under a convention that is not planq's; `column` and `bias` as far as
// there are such operands.
template <class C>
PLANQ_HD C value_by(Convention convention, bool accumulator, C code, C row, C column, C bias,
                    bool has_bias) {
  if (convention == Convention::Baracuda) {
    const C value = math::baracuda_value(code, row, column);
    return has_bias ? value + bias : value;
  }
  return accumulator ? math::bitsandbytes_value(code, row, column, has_bias ? bias : C{0})
                     : math::bitsandbytes_code_value(code, row);
}

inline constexpr std::string_view kConventionBasis =
    "element by element; one rounding for each product, sum and fma";

inline constexpr std::string_view kGroupBasis =
    "element by element; exact values of codes; one rounding for each product and for the result";

// Whether a kernel computes planq's own convention, the formats of groups, or the others.
inline Reason expect_own_convention(const Fields& f) {
  return expect(ReasonKind::Feature, "convention", Convention::Planq, f.convention);
}
inline Reason expect_mx(const Fields& f) {
  return expect(ReasonKind::Feature, "convention", Convention::Mx, f.convention);
}
inline Reason expect_nvfp4(const Fields& f) {
  return expect(ReasonKind::Feature, "convention", Convention::Nvfp4, f.convention);
}
inline Reason expect_other_convention(const Fields& f) {
  if (f.convention == Convention::BitsAndBytes || f.convention == Convention::Baracuda)
    return Reason::accept();
  return Reason::refuse(ReasonKind::Feature, "computes other conventions than planq");
}

}  // namespace planq::dequantize
