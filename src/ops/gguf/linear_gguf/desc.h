// linear_gguf: a linear layer whose weights are blocks of a GGUF file, as they lie there. The input
// is codes with a scale for every 32, or floats that dynamic_range_quantize makes such codes of.
// docs/numerics/gguf.md has the order of the sums.
#pragma once

#include "ops/gguf/operand_lines.h"
#include "ops/gguf/products/kernels.h"
#include "ops/gguf/products/order.h"
#include "ops/linear/gemm.h"
#include "ops/linear/operand_lines.h"

namespace planq::linear_gguf {

using gguf::kGroup;
using gguf::kSpan;

struct Fields {
  Shape input_shape;   // (..., m, k)
  Shape weight_shape;  // (n, k)
  GgufType type = GgufType::Q4_0;
  DType input_dtype = DType::Unset;
  DType output_dtype = DType::Unset;
  DType bias_dtype = DType::Unset;
  DType residual_dtype = DType::Unset;

  linear::OperandField input() const { return {input_shape, input_dtype}; }
  // Its strides count bytes.
  linear::OperandField weight() const { return {weight_shape, DType::UInt8}; }
};

inline constexpr Field kFields[] = {
    PLANQ_FIELD(Fields, input_shape).required().from("input.shape"),
    PLANQ_FIELD(Fields, weight_shape).required(),
    PLANQ_FIELD(Fields, type).required(),
    PLANQ_FIELD(Fields, input_dtype).required().from("input.dtype"),
    PLANQ_FIELD(Fields, output_dtype).required(),
    PLANQ_FIELD(Fields, bias_dtype).from("bias.dtype"),
    PLANQ_FIELD(Fields, residual_dtype).from("residual.dtype"),
};

// Positions in Operands.
enum Operand : int { kInput, kWeight, kOutput, kInputScale, kBias, kResidual };
inline constexpr auto kOperands =
    operands(kFields, {{"input", Role::Input, "input_dtype", "input_shape"},
                       {"weight", Role::Input, DType::UInt8,
                        axes(linear::layer_columns(), gguf::bytes_of_row("weight_shape"))},
                       {"output", Role::Output, "output_dtype", linear::layer_output()},
                       {"input_scale", Role::Input, DType::Float32,
                        with_axis("input_shape", -1, groups_of(last_of("input_shape"), kGroup)),
                        is("input_dtype", DType::Int8)},
                       linear::bias_line(),
                       linear::residual_line()});

// What kernels compute. Of the weights, a row's stride counts bytes; a row of codes has a scale for
// every kGroup of them, side by side.
inline linear::Gemm gemm_of(const Call& call) {
  const Fields& f = call.fields<Fields>();
  const Operands& operands = call.operands;
  return linear::make_gemm(
      f.input(), f.weight(),
      {.input = &operands[kInput],
       .weight = &operands[kWeight],
       .output = &operands[kOutput],
       .input_scale = f.input_dtype == DType::Int8 ? &operands[kInputScale] : nullptr,
       .bias = f.bias_dtype == DType::Unset ? nullptr : &operands[kBias],
       .residual = f.residual_dtype == DType::Unset ? nullptr : &operands[kResidual]});
}

template <DType kOutputType, Backend kBackend>
constexpr Kernel kernel(decltype(Kernel::prepare) prepare, decltype(Kernel::bind) bind,
                        decltype(Kernel::workspace) workspace = no_workspace) {
  return gguf::kernel_of_codes<Fields, kOutputType, kBackend>("linear_gguf", "blocks", prepare,
                                                              bind, workspace);
}
inline constexpr Guarantee kGuaranteeOfParts = gguf::guarantee_of_products(std::string_view(
    "the plans of dynamic_range_quantize and linear_gguf of its codes, one after the other"));
template <Backend kBackend>
inline constexpr Kernel kKernelOfParts =
    gguf::kernel_of_parts<Fields, kBackend>("linear_gguf", kGuaranteeOfParts);

}  // namespace planq::linear_gguf
