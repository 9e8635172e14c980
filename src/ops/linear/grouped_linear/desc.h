// grouped_linear: a linear layer with several weights of one shape, as mixtures of experts have
// them. Rows of the input lie expert by expert, and offsets in memory say where each expert's
// begin. The sums are those of linear_4bit and linear_mixed in the order GroupsSm90, or, where the
// input is codes as well, those of linear_w8a8 and linear_fp8.
#pragma once

#include "core/registry.h"
#include "ops/linear/experts.h"
#include "ops/linear/operand_lines.h"
#include "ops/linear/weight_only_layer.h"

namespace planq::grouped_linear {

// Whether an input of this type is codes under scales.
constexpr bool are_input_codes(DType input) { return input == DType::Int8 || is_fp8(input); }

struct Fields {
  Shape input_shape;   // (m, k)
  Shape weight_shape;  // (experts, n, k)
  DType input_dtype = DType::Unset;
  DType code_dtype = DType::UInt4;
  DType output_dtype = DType::Unset;
  Codebook codebook = Codebook::Nf4;
  std::int64_t block_size = 0;
  std::int64_t nested_block_size = 0;
  Scope input_scope = {ScopeKind::Token};
  Scope weight_scope = {ScopeKind::Token};
  Mode weight_mode = Mode::Symmetric;
  DType scale_dtype = DType::Float32;
  DType zero_point_dtype = DType::Int32;
  NibbleOrder nibble_order = NibbleOrder::LowFirst;
  DType bias_dtype = DType::Unset;

  std::int64_t experts() const { return weight_shape[0]; }
  std::int64_t columns() const { return weight_shape[1]; }
  std::int64_t terms() const { return weight_shape[2]; }
  // Whether codes are those of a codebook, in flat blocks of all weights.
  bool has_blocks() const { return block_size > 0; }
  bool has_codes_as_input() const { return are_input_codes(input_dtype); }
};

inline constexpr Field kFields[] = {
    PLANQ_FIELD(Fields, input_shape).required().from("input.shape"),
    PLANQ_FIELD(Fields, weight_shape).required(),
    PLANQ_FIELD(Fields, input_dtype).required().from("input.dtype"),
    PLANQ_FIELD(Fields, code_dtype),
    PLANQ_FIELD(Fields, output_dtype),
    PLANQ_FIELD(Fields, codebook),
    PLANQ_FIELD(Fields, block_size).count(),
    PLANQ_FIELD(Fields, nested_block_size).count(),
    PLANQ_FIELD(Fields, input_scope),
    PLANQ_FIELD(Fields, weight_scope),
    PLANQ_FIELD(Fields, weight_mode),
    PLANQ_FIELD(Fields, scale_dtype).from("weight_scale.dtype"),
    PLANQ_FIELD(Fields, zero_point_dtype).from("weight_zero_point.dtype"),
    PLANQ_FIELD(Fields, nibble_order),
    PLANQ_FIELD(Fields, bias_dtype).from("bias.dtype"),
};

// Positions in Operands.
enum Operand : int {
  kInput,
  kWeight,
  kExpertOffset,
  kOutput,
  kInputScale,
  kWeightScale,
  kWeightZeroPoint,
  kBias,
  kTensorScale,
  kAbsmax,
  kCodebook,
  kNestedAbsmax,
  kNestedOffset,
  kNestedCodebook
};
constexpr Rule per_expert() { return axis_of("weight_shape", 0); }
inline constexpr auto kOperands = operands(
    kFields, {{"input", Role::Input, "input_dtype", "input_shape"},
              {"weight", Role::Input, "code_dtype",
               when(is_set("block_size"), codes_shape("weight_shape", "code_dtype"),
                    packed_shape("weight_shape", "code_dtype"))},
              {"expert_offset", Role::Input, DType::Int32, per_expert() + 1},
              {"output", Role::Output, "output_dtype",
               axes(leading("input_shape"), axis_of("weight_shape", 1))},
              {"input_scale", Role::Input, DType::Float32,
               parameter_shape("input_shape", "input_scope"), is("input_dtype", are_input_codes)},
              linear::scale_line(!is_set("block_size")),
              linear::zero_point_line(),
              {"bias", Role::Input, "bias_dtype", leading("weight_shape"), is_set("bias_dtype")},
              {"tensor_scale", Role::Input, DType::Float32, per_expert(),
               is("scale_dtype", DType::Float8E4M3FN)},
              linear::absmax_line(),
              linear::codebook_line(),
              linear::nested_absmax_line(),
              linear::nested_offset_line(),
              linear::nested_codebook_line()});

// How an input of this type is summed; Unset: as integers.
constexpr Accumulation accumulation_of(DType input) {
  if (input == DType::Int8) return Accumulation::Unset;
  return is_fp8(input) ? Accumulation::TensorSm90 : Accumulation::GroupsSm90;
}

// What kernels are told of the codes of weights alone, and the experts of a call.
linear::CodeKind kind_of(const Fields& f);
linear::Experts experts_of(const Call& call);

}  // namespace planq::grouped_linear
