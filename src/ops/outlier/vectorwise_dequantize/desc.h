// vectorwise_dequantize: the elements that codes of vectorwise_quantize stand for. The arithmetic
// is in outlier/vectorwise.h.
#pragma once

#include "core/operands.h"
#include "core/registry.h"
#include "core/rejects.h"
#include "ops/outlier/vectorwise.h"
#include "ops/outlier/vocabulary.h"

namespace planq::vectorwise_dequantize {

struct Fields {
  Shape shape;
  DType input_dtype = DType::Unset;
  DType output_dtype = DType::Unset;
  VectorwiseForm form = VectorwiseForm::Vector;
  std::int64_t axis = -1;
};

inline constexpr Field kFields[] = {
    PLANQ_FIELD(Fields, shape).required().from("input.shape"),
    PLANQ_FIELD(Fields, input_dtype),
    PLANQ_FIELD(Fields, output_dtype).required(),
    PLANQ_FIELD(Fields, form),
    PLANQ_FIELD(Fields, axis),
};

// Positions in Operands.
enum Operand : int { kInput, kOutput, kScale, kZeroPoint };
inline constexpr auto kOperands = operands(
    kFields, {{"input", Role::Input, "input_dtype", "shape"},
              {"output", Role::Output, "output_dtype", "shape"},
              {"scale", Role::Input, compute_dtype("output_dtype"), outlier::statistic_shape()},
              {"zero_point", Role::Input, DType::Int32, outlier::statistic_shape(),
               is("form", outlier::has_zero_point)}});

inline Scope scope_of(const Fields& f) { return outlier::scope_of(f.form, f.shape, f.axis); }

// What the kernels of both backends promise.
template <DType kOut>
constexpr Guarantee guarantee() {
  constexpr bool kWide = kOut == DType::Float64;
  return {.determinism = Determinism::BitExact,
          .math = kWide ? MathPrecision::F64 : MathPrecision::F32,
          .accumulator = compute_dtype(kOut),
          .rounding = Rounding::NearestEven,
          .max_ulp = 0,
          .error_bound = kNoErrorBound,
          .batch_invariant = true,
          .basis = std::string_view("element by element; exact integer difference; one rounding "
                                    "for each quotient and product")};
}

template <DType kIn, DType kOut>
Reason rejects(const Descriptor& descriptor, const Device&) {
  const Fields& f = descriptor.as<Fields>();
  Reason reason = expect(ReasonKind::DType, "input_dtype", kIn, f.input_dtype);
  return reason.accepted() ? expect(ReasonKind::DType, "output_dtype", kOut, f.output_dtype)
                           : reason;
}

}  // namespace planq::vectorwise_dequantize
