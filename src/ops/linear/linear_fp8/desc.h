// linear_fp8: a linear layer of 8-bit floating codes: their gemm with scales of rows and columns,
// or of blocks, a bias and a residual. Sums are those of the tensor cores of sm_90: see
// math/tensor_core.h.
#pragma once

#include "ops/linear/checks.h"
#include "ops/linear/operand_lines.h"
#include "ops/linear/vocabulary.h"

namespace planq::linear_fp8 {

struct Fields {
  Shape input_shape;   // (..., m, k)
  Shape weight_shape;  // (n, k)
  DType input_dtype = DType::Float8E4M3FN;
  DType weight_dtype = DType::Float8E4M3FN;
  DType output_dtype = DType::Unset;
  Scope input_scope = {ScopeKind::Token};
  Scope weight_scope = {ScopeKind::Channel};
  Accumulation accumulation = Accumulation::TensorSm90;
  DType bias_dtype = DType::Unset;
  DType residual_dtype = DType::Unset;

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
    PLANQ_FIELD(Fields, accumulation),
    PLANQ_FIELD(Fields, bias_dtype).from("bias.dtype"),
    PLANQ_FIELD(Fields, residual_dtype).from("residual.dtype"),
};

// Positions in Operands.
enum Operand : int { kInput, kWeight, kOutput, kInputScale, kWeightScale, kBias, kResidual };
inline constexpr auto kOperands = operands(
    kFields,
    {{"input", Role::Input, "input_dtype", "input_shape"},
     {"weight", Role::Input, "weight_dtype", "weight_shape"},
     {"output", Role::Output, "output_dtype", linear::layer_output()},
     {"input_scale", Role::Input, DType::Float32, parameter_shape("input_shape", "input_scope")},
     {"weight_scale", Role::Input, DType::Float32, parameter_shape("weight_shape", "weight_scope")},
     linear::bias_line(),
     linear::residual_line()});

// The operator as its kernels see it: see tables/float_kernels.h.
struct Layer {
  using Fields = linear_fp8::Fields;
  static constexpr std::string_view kName = "linear_fp8";

  static linear::Gemm gemm_of(const Call& call) {
    const Fields& f = call.fields<Fields>();
    const Operands& operands = call.operands;
    return linear::make_gemm(
        f.input(), f.weight(),
        {.input = &operands[kInput],
         .weight = &operands[kWeight],
         .output = &operands[kOutput],
         .input_scale = &operands[kInputScale],
         .weight_scale = &operands[kWeightScale],
         .bias = f.bias_dtype == DType::Unset ? nullptr : &operands[kBias],
         .residual = f.residual_dtype == DType::Unset ? nullptr : &operands[kResidual]});
  }
};

}  // namespace planq::linear_fp8
