// rms_norm: rows divided by the root of the mean of their squares, times a weight.
#pragma once

#include <array>
#include <cstddef>

#include "core/operands.h"
#include "core/registry.h"
#include "ops/affine/quantized_output.h"
#include "ops/norm/norm.h"

namespace planq::rms_norm {

struct Fields {
  Shape shape;
  DType input_dtype = DType::Unset;
  DType weight_dtype = DType::Unset;
  DType output_dtype = DType::Unset;
  DType residual_dtype = DType::Unset;
  double weight_offset = 0.0;
  bool round_before_weight = false;
  affine::QuantizedOutput quantized;
};

inline constexpr auto kFields =
    joined(std::array{PLANQ_FIELD(Fields, shape).required().from("input.shape"),
                      PLANQ_FIELD(Fields, input_dtype).required().from("input.dtype"),
                      PLANQ_FIELD(Fields, weight_dtype).required().from("weight.dtype"),
                      PLANQ_FIELD(Fields, output_dtype),
                      PLANQ_FIELD(Fields, residual_dtype).from("residual.dtype"),
                      PLANQ_FIELD(Fields, weight_offset), PLANQ_FIELD(Fields, round_before_weight)},
           affine::quantized_fields(offsetof(Fields, quantized)));

// Positions in Operands.
enum Operand : int {
  kInput,
  kWeight,
  kResidual,
  kOutput,
  kScale,
  kZeroPoint,
  kInverseTensorScale,
  kFloatingOutput,
  kEps
};
inline constexpr auto kOperands = operands(
    kFields, {{"input", Role::Input, "input_dtype", "shape"},
              {"weight", Role::Input, "weight_dtype", last_of("shape")},
              {"residual", Role::InOut, "residual_dtype", "shape", is_set("residual_dtype")},
              affine::codes_line().in_place_of("input"),
              affine::scale_line(),
              affine::zero_point_line(),
              affine::inverse_tensor_scale_line(),
              affine::floating_output_line(),
              scalar("eps", Role::Input, DType::Float64)});

inline norm::Norm norm_of(const Call& call) {
  const Fields& f = call.fields<Fields>();
  const Operands& given = call.operands;
  norm::Norm norm;
  norm.input = &given[kInput];
  norm.weight = &given[kWeight];
  norm.residual = f.residual_dtype == DType::Unset ? nullptr : &given[kResidual];
  norm.output = &given[kOutput];
  norm.weight_dtype = f.weight_dtype;
  norm.residual_dtype = f.residual_dtype;
  norm.output_dtype = f.output_dtype;
  norm.eps = float_of(given[kEps]);
  norm.weight_offset = static_cast<float>(f.weight_offset);
  norm.round_before_weight = f.round_before_weight;
  norm::lay_out(norm, f.shape);
  return norm;
}

}  // namespace planq::rms_norm
