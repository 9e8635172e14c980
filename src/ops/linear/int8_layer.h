// What the descriptors of linear layers of integer codes share. They have linear_w8a8's fields,
// under the same names, and their operands begin with its operands.
#pragma once

#include <string>

#include "core/scope.h"
#include "ops/affine/checks.h"
#include "ops/linear/checks.h"

namespace planq::linear {

// Positions in Operands.
enum LayerOperand : int {
  kLayerInput,
  kLayerWeight,
  kLayerOutput,
  kLayerInputScale,
  kLayerWeightScale,
  kLayerInputZeroPoint,
  kLayerWeightZeroPoint,
  kLayerInputSum,
  kLayerWeightSum,
  kLayerBias,
  kLayerResidual,
  kLayerOperands
};

template <class Fields>
Fault layer_dtypes(Fields& f, std::span<const DType> codes) {
  if (Fault fault = checks::dtype("input_dtype", f.input_dtype, codes); !fault.ok()) return fault;
  if (Fault fault = checks::dtype("weight_dtype", f.weight_dtype, codes); !fault.ok()) return fault;
  if (Fault fault = checks::dtype("output_dtype", f.output_dtype, checks::kFloats); !fault.ok())
    return fault;
  if (Fault fault = checks::scale_dtype(f.output_dtype, f.scale_dtype); !fault.ok()) return fault;
  return checks::addends(f.bias_dtype, f.residual_dtype);
}

// `codes`: the types that input and weights may have.
template <class Fields>
Fault resolve_layer(Fields& f, std::span<const DType> codes) {
  if (Fault fault = layer_dtypes(f, codes); !fault.ok()) return fault;
  if (Fault fault = checks::layer_weight(f.weight_shape); !fault.ok()) return fault;
  if (Fault fault = checks::gemm_shapes(f.input(), f.weight()); !fault.ok()) return fault;
  if (Fault fault =
          checks::gemm_scopes(f.input_scope, f.input_shape, f.weight_scope, f.weight_shape);
      !fault.ok())
    return fault;
  if (Fault fault = checks::gemm_convention(f.convention, f.input_mode, f.weight_mode); !fault.ok())
    return fault;
  return checks::sum_in_range("input_shape", f.input_shape.last(),
                              checks::largest_code(f.input_dtype, f.input_mode) *
                                  checks::largest_code(f.weight_dtype, f.weight_mode));
}

// What every kernel's bind begins with. `outlier`: the values of Outliers, if there are any.
template <class Fields>
Gemm layer_gemm(const Fields& f, const Operands& operands, const OperandView* outlier = nullptr) {
  const auto where = [&](bool present, LayerOperand operand) {
    return present ? &operands[operand] : nullptr;
  };
  const bool input_shifts = f.input_mode == Mode::Asymmetric;
  const bool weight_shifts = f.weight_mode == Mode::Asymmetric;
  return make_gemm(f.input(), f.weight(),
                   {.input = &operands[kLayerInput],
                    .weight = &operands[kLayerWeight],
                    .output = &operands[kLayerOutput],
                    .input_scale = &operands[kLayerInputScale],
                    .weight_scale = &operands[kLayerWeightScale],
                    .input_zero_point = where(input_shifts, kLayerInputZeroPoint),
                    .weight_zero_point = where(weight_shifts, kLayerWeightZeroPoint),
                    .input_sum = where(weight_shifts, kLayerInputSum),
                    .weight_sum = where(input_shifts, kLayerWeightSum),
                    .bias = where(f.bias_dtype != DType::Unset, kLayerBias),
                    .residual = where(f.residual_dtype != DType::Unset, kLayerResidual),
                    .outlier = outlier},
                   f.convention);
}

}  // namespace planq::linear
