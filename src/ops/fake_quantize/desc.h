// fake_quantize: quantize and dequantize in one pass, with parameters that are given or those of
// the range of each segment. The arithmetic is in math/affine.h.
#pragma once

#include "core/descriptor.h"
#include "core/registry.h"
#include "core/scope.h"
#include "math/scale.h"

namespace planq::fake_quantize {

struct Fields {
  Shape shape;
  DType input_dtype = DType::Unset;
  Scope scope;
  Mode mode = Mode::Symmetric;
  double q_min = kUnsetBound;
  double q_max = kUnsetBound;
  DType scale_dtype = DType::Unset;
  DType zero_point_dtype = DType::Unset;
  Quotient quotient = Quotient::Divide;
  NonFinite nonfinite = NonFinite::Propagate;
  bool include_zero = true;
  Rounding rounding = Rounding::NearestEven;
  bool dynamic = false;
};

inline constexpr Field kFields[] = {
    PLANQ_FIELD(Fields, shape),        PLANQ_FIELD(Fields, input_dtype),
    PLANQ_FIELD(Fields, scope),        PLANQ_FIELD(Fields, mode),
    PLANQ_FIELD(Fields, q_min),        PLANQ_FIELD(Fields, q_max),
    PLANQ_FIELD(Fields, scale_dtype),  PLANQ_FIELD(Fields, zero_point_dtype),
    PLANQ_FIELD(Fields, quotient),     PLANQ_FIELD(Fields, nonfinite),
    PLANQ_FIELD(Fields, include_zero), PLANQ_FIELD(Fields, rounding),
    PLANQ_FIELD(Fields, dynamic),
};

// Positions in Operands.
enum Operand : int { kInput, kOutput, kScale, kZeroPoint, kSeed, kOffset };
inline constexpr std::string_view kOperands[] = {"input",      "output", "scale",
                                                 "zero_point", "seed",   "offset"};

template <class C>
math::AffineRecipe<C> recipe_of(const Fields& f) {
  return math::affine_recipe<C>(DType::Int32, f.scale_dtype, f.mode, f.quotient, f.nonfinite,
                                f.include_zero, f.q_min, f.q_max);
}

}  // namespace planq::fake_quantize
