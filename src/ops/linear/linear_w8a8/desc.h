// linear_w8a8: a linear layer of codes: their integer gemm (ops/linear/gemm.h) with scales of rows
// and columns, zero points, a bias and a residual (ops/linear/epilogue.h).
#pragma once

#include "ops/linear/int8_layer.h"
#include "ops/linear/operand_lines.h"

namespace planq::linear_w8a8 {

struct Fields {
  Shape input_shape;   // (..., m, k)
  Shape weight_shape;  // (n, k)
  DType input_dtype = DType::Int8;
  DType weight_dtype = DType::Int8;
  DType output_dtype = DType::Unset;
  Scope input_scope = {ScopeKind::Token};
  Scope weight_scope = {ScopeKind::Channel};
  Mode input_mode = Mode::Symmetric;
  Mode weight_mode = Mode::Symmetric;
  DType scale_dtype = DType::Unset;
  DType bias_dtype = DType::Unset;
  DType residual_dtype = DType::Unset;
  Convention convention = Convention::Planq;

  linear::OperandField input() const { return {input_shape, input_dtype}; }
  linear::OperandField weight() const { return {weight_shape, weight_dtype}; }
};

inline constexpr Field kFields[] = {
    PLANQ_FIELD(Fields, input_shape).required().from("input.shape"),
    PLANQ_FIELD(Fields, weight_shape).required().from("weight.shape"),
    PLANQ_FIELD(Fields, input_dtype),
    PLANQ_FIELD(Fields, weight_dtype),
    PLANQ_FIELD(Fields, output_dtype).required(),
    PLANQ_FIELD(Fields, input_scope),
    PLANQ_FIELD(Fields, weight_scope),
    PLANQ_FIELD(Fields, input_mode),
    PLANQ_FIELD(Fields, weight_mode),
    PLANQ_FIELD(Fields, scale_dtype).from("input_scale.dtype"),
    PLANQ_FIELD(Fields, bias_dtype).from("bias.dtype"),
    PLANQ_FIELD(Fields, residual_dtype).from("residual.dtype"),
    PLANQ_FIELD(Fields, convention),
};

// In the order of linear::LayerOperand.
inline constexpr auto kOperands = operands(kFields, linear::layer_lines());

// The operator as its kernels see it: see tables/int_kernels.h.
struct Layer {
  using Fields = linear_w8a8::Fields;
  static constexpr std::string_view kName = "linear_w8a8";
  static constexpr bool kHasScales = true;

  static linear::Gemm gemm_of(const Call& call) {
    return linear::layer_gemm(call.fields<Fields>(), call.operands);
  }
};

}  // namespace planq::linear_w8a8
