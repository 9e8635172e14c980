// linear_4bit: a linear layer of floating activations and 4-bit weights. It is matmul with the
// weights that blockwise_dequantize, or dequantize, writes. In the order GroupsSm90 their scales
// meet sums instead.
#pragma once

#include "core/registry.h"
#include "ops/linear/operand_lines.h"
#include "ops/linear/vocabulary.h"
#include "ops/linear/weight_only_layer.h"

namespace planq::linear_4bit {

struct Fields {
  Shape input_shape;   // (..., m, k)
  Shape weight_shape;  // (n, k)
  DType input_dtype = DType::Unset;
  DType code_dtype = DType::UInt4;
  DType weight_dtype = DType::Unset;
  DType output_dtype = DType::Unset;
  Codebook codebook = Codebook::Nf4;
  std::int64_t block_size = 0;
  std::int64_t nested_block_size = 0;
  Scope weight_scope = {ScopeKind::Tensor};
  Mode weight_mode = Mode::Symmetric;
  DType scale_dtype = DType::Float32;
  DType zero_point_dtype = DType::Int32;
  NibbleOrder nibble_order = NibbleOrder::HighFirst;
  WeightLayout weight_layout = WeightLayout::RowMajor;
  Accumulation accumulation = Accumulation::Unset;
  DType bias_dtype = DType::Unset;
  DType residual_dtype = DType::Unset;

  linear::OperandField input() const { return {input_shape, input_dtype}; }
  linear::OperandField weight() const { return {weight_shape, weight_dtype}; }
  // Whether codes are those of a codebook, in flat blocks. Otherwise they are numbers in groups.
  bool has_blocks() const { return block_size > 0; }
};

inline constexpr Field kFields[] = {
    PLANQ_FIELD(Fields, input_shape).required().from("input.shape"),
    PLANQ_FIELD(Fields, weight_shape).required(),
    PLANQ_FIELD(Fields, input_dtype).required().from("input.dtype"),
    PLANQ_FIELD(Fields, code_dtype),
    PLANQ_FIELD(Fields, weight_dtype),
    PLANQ_FIELD(Fields, output_dtype),
    PLANQ_FIELD(Fields, codebook),
    PLANQ_FIELD(Fields, block_size).count(),
    PLANQ_FIELD(Fields, nested_block_size).count(),
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
  kAbsmax,
  kCodebook,
  kNestedAbsmax,
  kNestedOffset,
  kNestedCodebook,
  kWeightScale,
  kWeightZeroPoint,
  kBias,
  kResidual,
  kTensorScale
};
inline constexpr auto kOperands = operands(
    kFields,
    {{"input", Role::Input, "input_dtype", "input_shape"},
     linear::coded_weight(when(is_set("block_size"), codes_shape("weight_shape", "code_dtype"),
                               packed_shape("weight_shape", "code_dtype"))),
     {"output", Role::Output, "output_dtype", linear::layer_output()},
     linear::absmax_line(),
     linear::codebook_line(),
     linear::nested_absmax_line(),
     linear::nested_offset_line(),
     linear::nested_codebook_line(),
     linear::scale_line(!is_set("block_size")),
     linear::zero_point_line(),
     linear::bias_line(),
     linear::residual_line(),
     linear::tensor_scale_line()});

// The operator as its kernels see it: see tables/float_kernels.h. A gemm points to its codes.
struct Layer {
  using Fields = linear_4bit::Fields;
  static constexpr std::string_view kName = "linear_4bit";

  static linear::CodeKind kind_of(const Fields& f) { return linear::kind_of_layer(f); }

  static linear::WeightCodes codes_of(const Call& call) {
    const Fields& f = call.fields<Fields>();
    const Operands& operands = call.operands;
    if (!f.has_blocks())
      return linear::grouped_codes(
          f, operands[kWeight],
          {operands[kWeightScale], operands[kWeightZeroPoint], operands[kTensorScale]});
    return linear::block_codes(f, operands[kWeight],
                               {operands[kAbsmax], operands[kCodebook], operands[kNestedAbsmax],
                                operands[kNestedOffset], operands[kNestedCodebook]});
  }
  static linear::Gemm gemm_of(const Call& call, const linear::WeightCodes& codes) {
    const Fields& f = call.fields<Fields>();
    const Operands& operands = call.operands;
    return linear::make_gemm(
        f.input(), f.weight(),
        {.input = &operands[kInput],
         .weight = &operands[kWeight],
         .output = &operands[kOutput],
         .bias = f.bias_dtype == DType::Unset ? nullptr : &operands[kBias],
         .residual = f.residual_dtype == DType::Unset ? nullptr : &operands[kResidual]},
        &codes);
  }
};

}  // namespace planq::linear_4bit
