// fake_quantize_backward: the straight-through gradient of fake_quantize. The arithmetic is in
// affine/affine.h.
#pragma once

#include "core/operands.h"
#include "core/registry.h"
#include "core/scope.h"
#include "ops/affine/elementwise/straight_through.h"
#include "ops/affine/scale.h"

namespace planq::fake_quantize_backward {

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
};

inline constexpr Field kFields[] = {
    PLANQ_FIELD(Fields, shape).required().from("input.shape"),
    PLANQ_FIELD(Fields, input_dtype).required().from("input.dtype"),
    PLANQ_FIELD(Fields, scope),
    PLANQ_FIELD(Fields, mode),
    PLANQ_FIELD(Fields, q_min),
    PLANQ_FIELD(Fields, q_max),
    PLANQ_FIELD(Fields, scale_dtype).from("scale.dtype"),
    PLANQ_FIELD(Fields, zero_point_dtype).from("zero_point.dtype"),
    PLANQ_FIELD(Fields, quotient),
};

using enum straight_through::Operand;
inline constexpr auto kOperands = straight_through::operands_of(kFields);

template <class C>
math::AffineSpec<C> spec_of(const Fields& f) {
  return math::affine_spec<C>(DType::Int32, f.scale_dtype, f.mode, f.quotient, NonFinite::Propagate,
                              true, f.q_min, f.q_max);
}

struct Gradient : straight_through::Gradient<Fields> {
  static constexpr std::string_view kName = "fake_quantize_backward";
};

}  // namespace planq::fake_quantize_backward
