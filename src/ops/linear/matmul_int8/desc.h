// matmul_int8: the integer gemm of two matrices of codes, or of batches of them: ops/linear/gemm.h.
#pragma once

#include "ops/linear/checks.h"
#include "ops/linear/operand_lines.h"

namespace planq::matmul_int8 {

struct Fields {
  Shape input_shape;   // (..., m, k)
  Shape weight_shape;  // (..., n, k)
  DType input_dtype = DType::Int8;
  DType weight_dtype = DType::Int8;
  DType output_dtype = DType::Int32;
  bool transpose_input = false;   // input_shape is (..., k, m)
  bool transpose_weight = false;  // weight_shape is (..., k, n)

  linear::OperandField input() const { return {input_shape, input_dtype, transpose_input}; }
  linear::OperandField weight() const { return {weight_shape, weight_dtype, transpose_weight}; }
};

inline constexpr Field kFields[] = {
    PLANQ_FIELD(Fields, input_shape).required().from("input.shape"),
    PLANQ_FIELD(Fields, weight_shape).required().from("weight.shape"),
    PLANQ_FIELD(Fields, input_dtype),
    PLANQ_FIELD(Fields, weight_dtype),
    PLANQ_FIELD(Fields, output_dtype),
    PLANQ_FIELD(Fields, transpose_input),
    PLANQ_FIELD(Fields, transpose_weight),
};

// Positions in Operands.
enum Operand : int { kInput, kWeight, kOutput };
inline constexpr auto kOperands = operands(
    kFields, {{"input", Role::Input, "input_dtype", packed_shape("input_shape", "input_dtype")},
              {"weight", Role::Input, "weight_dtype", packed_shape("weight_shape", "weight_dtype")},
              {"output", Role::Output, "output_dtype", linear::gemm_output()}});

// The operator as its kernels see it: see tables/int_kernels.h.
struct Layer {
  using Fields = matmul_int8::Fields;
  static constexpr std::string_view kName = "matmul_int8";
  static constexpr bool kHasScales = false;

  static linear::Gemm gemm_of(const Call& call) {
    const Fields& f = call.fields<Fields>();
    return linear::make_gemm(f.input(), f.weight(),
                             {.input = &call.operands[kInput],
                              .weight = &call.operands[kWeight],
                              .output = &call.operands[kOutput]});
  }
};

}  // namespace planq::matmul_int8
