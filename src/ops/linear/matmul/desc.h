// matmul: the gemm of two floating matrices, or of batches of them, with a bias and a residual. The
// order of its sums has a name, an Accumulation: see math/tensor_core.h.
#pragma once

#include "ops/linear/checks.h"
#include "ops/linear/operand_lines.h"
#include "ops/linear/vocabulary.h"

namespace planq::matmul {

struct Fields {
  Shape input_shape;   // (..., m, k)
  Shape weight_shape;  // (..., n, k)
  DType input_dtype = DType::Unset;
  DType weight_dtype = DType::Unset;
  DType output_dtype = DType::Unset;
  bool transpose_input = false;   // input_shape is (..., k, m)
  bool transpose_weight = false;  // weight_shape is (..., k, n)
  Accumulation accumulation = Accumulation::TensorSm90;
  DType bias_dtype = DType::Unset;
  DType residual_dtype = DType::Unset;

  linear::OperandField input() const { return {input_shape, input_dtype, transpose_input}; }
  linear::OperandField weight() const { return {weight_shape, weight_dtype, transpose_weight}; }
};

inline constexpr Field kFields[] = {
    PLANQ_FIELD(Fields, input_shape).required().from("input.shape"),
    PLANQ_FIELD(Fields, weight_shape).required().from("weight.shape"),
    PLANQ_FIELD(Fields, input_dtype).required().from("input.dtype"),
    PLANQ_FIELD(Fields, weight_dtype).from("weight.dtype"),
    PLANQ_FIELD(Fields, output_dtype),
    PLANQ_FIELD(Fields, transpose_input),
    PLANQ_FIELD(Fields, transpose_weight),
    PLANQ_FIELD(Fields, accumulation),
    PLANQ_FIELD(Fields, bias_dtype).from("bias.dtype"),
    PLANQ_FIELD(Fields, residual_dtype).from("residual.dtype"),
};

// Positions in Operands.
enum Operand : int { kInput, kWeight, kOutput, kBias, kResidual };
inline constexpr auto kOperands = operands(
    kFields,
    {{"input", Role::Input, "input_dtype", "input_shape"},
     {"weight", Role::Input, "weight_dtype", "weight_shape"},
     {"output", Role::Output, "output_dtype", linear::gemm_output()},
     {"bias", Role::Input, "bias_dtype", linear::gemm_columns(), is_set("bias_dtype")},
     {"residual", Role::Input, "residual_dtype", linear::gemm_output(), is_set("residual_dtype")}});

// The operator as its kernels see it: see tables/float_kernels.h.
struct Layer {
  using Fields = matmul::Fields;
  static constexpr std::string_view kName = "matmul";

  static linear::Gemm gemm_of(const Call& call) {
    const Fields& f = call.fields<Fields>();
    const Operands& operands = call.operands;
    return linear::make_gemm(
        f.input(), f.weight(),
        {.input = &operands[kInput],
         .weight = &operands[kWeight],
         .output = &operands[kOutput],
         .bias = f.bias_dtype == DType::Unset ? nullptr : &operands[kBias],
         .residual = f.residual_dtype == DType::Unset ? nullptr : &operands[kResidual]});
  }
};

}  // namespace planq::matmul
