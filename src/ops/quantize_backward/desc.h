// quantize_backward: the straight-through gradient of quantize. The arithmetic is in math/affine.h.
#pragma once

#include "core/descriptor.h"
#include "core/elementwise.h"
#include "core/registry.h"
#include "core/scope.h"
#include "math/scale.h"

namespace planq::quantize_backward {

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
};

inline constexpr Field kFields[] = {
    PLANQ_FIELD(Fields, shape),
    PLANQ_FIELD(Fields, input_dtype),
    PLANQ_FIELD(Fields, output_dtype),
    PLANQ_FIELD(Fields, scope),
    PLANQ_FIELD(Fields, mode),
    PLANQ_FIELD(Fields, q_min),
    PLANQ_FIELD(Fields, q_max),
    PLANQ_FIELD(Fields, scale_dtype),
    PLANQ_FIELD(Fields, zero_point_dtype),
    PLANQ_FIELD(Fields, quotient),
};

// Positions in Operands.
enum Operand : int { kGradOutput, kInput, kGradInput, kScale, kZeroPoint };
inline constexpr std::string_view kOperands[] = {"grad_output", "input", "grad_input", "scale",
                                                 "zero_point"};

template <class C>
math::AffineRecipe<C> recipe_of(const Fields& f) {
  return math::affine_recipe<C>(f.output_dtype, f.scale_dtype, f.mode, f.quotient,
                                NonFinite::Propagate, true, f.q_min, f.q_max);
}

inline std::array<ElementOperand, 5> layout_of(const Fields& f, const Operands& operands) {
  const bool asymmetric = f.mode == Mode::Asymmetric;
  return {ElementOperand{&operands[kGradOutput]},
          {&operands[kInput]},
          {&operands[kGradInput]},
          {&operands[kScale]},
          {asymmetric ? &operands[kZeroPoint] : nullptr, is_four_bit(f.zero_point_dtype)}};
}

// What the rows of both backends are made of.
struct Gradient {
  using Fields = quantize_backward::Fields;
  static constexpr std::string_view kName = "quantize_backward", kElement = "input_dtype";
  static constexpr std::string_view kBasis =
      "element by element; the quotient of the forward pass; "
      "exact integer sums";
  static constexpr DType element(const Fields& f) { return f.input_dtype; }
};

}  // namespace planq::quantize_backward
