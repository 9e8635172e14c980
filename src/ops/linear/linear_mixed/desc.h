// linear_mixed: a linear layer of floating activations and weights that are integers, or floats of
// 8 bits. Scales are either those of channels, which the epilogue multiplies sums with, or those of
// groups: then weights are dequantized as dequantize does it. In the order GroupsSm90 a channel is
// one group, and scales meet the sums of their groups.
#pragma once

#include "core/registry.h"
#include "ops/linear/operand_lines.h"
#include "ops/linear/vocabulary.h"
#include "ops/linear/weight_only_layer.h"

namespace planq::linear_mixed {

struct Fields {
  Shape input_shape;   // (..., m, k)
  Shape weight_shape;  // (n, k)
  DType input_dtype = DType::Unset;
  DType code_dtype = DType::Int8;
  DType weight_dtype = DType::Unset;
  DType output_dtype = DType::Unset;
  Scope weight_scope = {ScopeKind::Channel};
  Mode weight_mode = Mode::Symmetric;
  DType scale_dtype = DType::Float32;
  DType zero_point_dtype = DType::Int32;
  NibbleOrder nibble_order = NibbleOrder::LowFirst;
  WeightLayout weight_layout = WeightLayout::RowMajor;
  Accumulation accumulation = Accumulation::Unset;
  DType bias_dtype = DType::Unset;
  DType residual_dtype = DType::Unset;

  linear::OperandField input() const { return {input_shape, input_dtype}; }
  linear::OperandField weight() const { return {weight_shape, weight_dtype}; }
};

inline constexpr Field kFields[] = {
    PLANQ_FIELD(Fields, input_shape).required().from("input.shape"),
    PLANQ_FIELD(Fields, weight_shape).required(),
    PLANQ_FIELD(Fields, input_dtype).required().from("input.dtype"),
    PLANQ_FIELD(Fields, code_dtype),
    PLANQ_FIELD(Fields, weight_dtype),
    PLANQ_FIELD(Fields, output_dtype),
    PLANQ_FIELD(Fields, weight_scope),
    PLANQ_FIELD(Fields, weight_mode),
    PLANQ_FIELD(Fields, scale_dtype).from("weight_scale.dtype"),
    PLANQ_FIELD(Fields, zero_point_dtype).from("weight_zero_point.dtype"),
    PLANQ_FIELD(Fields, nibble_order),
    PLANQ_FIELD(Fields, weight_layout),
    PLANQ_FIELD(Fields, accumulation),
    PLANQ_FIELD(Fields, bias_dtype).from("bias.dtype"),
    PLANQ_FIELD(Fields, residual_dtype).from("residual.dtype"),
};

// Positions in Operands.
enum Operand : int {
  kInput,
  kWeight,
  kOutput,
  kWeightScale,
  kWeightZeroPoint,
  kBias,
  kResidual,
  kTensorScale
};
inline constexpr auto kOperands =
    operands(kFields, {{"input", Role::Input, "input_dtype", "input_shape"},
                       linear::coded_weight(packed_shape("weight_shape", "code_dtype")),
                       {"output", Role::Output, "output_dtype", linear::layer_output()},
                       linear::scale_line(),
                       linear::zero_point_line(),
                       linear::bias_line(),
                       linear::residual_line(),
                       linear::tensor_scale_line()});

// The operator as its kernels see it: see tables/float_kernels.h. A gemm points to its codes.
struct Layer {
  using Fields = linear_mixed::Fields;
  static constexpr std::string_view kName = "linear_mixed";

  static linear::CodeKind kind_of(const Fields& f) { return linear::kind_of_layer(f); }

  static linear::WeightCodes codes_of(const Call& call) {
    const Operands& operands = call.operands;
    return linear::grouped_codes(
        call.fields<Fields>(), operands[kWeight],
        {operands[kWeightScale], operands[kWeightZeroPoint], operands[kTensorScale]});
  }
  static linear::Gemm gemm_of(const Call& call, const linear::WeightCodes& codes) {
    const Fields& f = call.fields<Fields>();
    const Operands& operands = call.operands;
    return linear::make_gemm(
        f.input(), f.weight(),
        {.input = &operands[kInput],
         .weight = &operands[kWeight],
         .output = &operands[kOutput],
         .weight_scale = linear::has_scales_of_columns(f) ? &operands[kWeightScale] : nullptr,
         .bias = f.bias_dtype == DType::Unset ? nullptr : &operands[kBias],
         .residual = f.residual_dtype == DType::Unset ? nullptr : &operands[kResidual]},
        &codes);
  }
};

}  // namespace planq::linear_mixed
