// What the descriptors of linear layers of floating activations and coded weights share. They have
// linear_4bit's fields and operands, under the same names.
#pragma once

#include <algorithm>
#include <string>

#include "core/operands.h"
#include "core/scope.h"
#include "ops/affine/checks.h"
#include "ops/codebook/checks.h"
#include "ops/codebook/codebook.h"
#include "ops/linear/checks.h"
#include "ops/linear/weight_only/codes.h"
#include "ops/packing/fragment_order.h"
#include "ops/packing/mixed_dtype_layout.h"

namespace planq::linear {

// Checks the types, and fills in output_dtype and weight_dtype.
template <class Fields>
Fault coded_dtypes(Fields& f, std::span<const DType> codes) {
  if (Fault fault = checks::dtype("input_dtype", f.input_dtype, checks::kSumOutputs); !fault.ok())
    return fault;
  if (Fault fault = checks::dtype("code_dtype", f.code_dtype, codes); !fault.ok()) return fault;
  if (f.weight_dtype == DType::Unset) f.weight_dtype = f.input_dtype;
  if (Fault fault = checks::dtype("weight_dtype", f.weight_dtype, checks::kSumOutputs); !fault.ok())
    return fault;
  if (f.output_dtype == DType::Unset) f.output_dtype = f.input_dtype;
  if (Fault fault = checks::dtype("output_dtype", f.output_dtype, checks::kSumOutputs); !fault.ok())
    return fault;
  return checks::addends(f.bias_dtype, f.residual_dtype);
}

// Whether codes are floats, which have no zero points.
constexpr bool are_floats(DType codes) { return codes == DType::Float4E2M1FN || is_fp8(codes); }

inline constexpr DType kGroupScales[] = {DType::Float32, DType::BFloat16, DType::Float16,
                                         DType::Float8E8M0FNU, DType::Float8E4M3FN};
inline constexpr DType kZeroPoints[] = {DType::Int32, DType::Int8, DType::UInt8};

// Checks the types of scales and of zero points. Scales of a byte are those of groups.
template <class Fields>
Fault coded_parameters(const Fields& f) {
  if (Fault fault = checks::dtype("scale_dtype", f.scale_dtype, kGroupScales); !fault.ok())
    return fault;
  if (Fault fault = checks::dtype("zero_point_dtype", f.zero_point_dtype, kZeroPoints); !fault.ok())
    return fault;
  const std::string codes(name_of(f.code_dtype)), scales(name_of(f.scale_dtype));
  if (is_fp8(f.scale_dtype) && f.weight_scope.kind != ScopeKind::Group)
    return {"scale_dtype", scales + " is for groups; expected float32, bfloat16 or float16"};
  const bool shifted = f.weight_mode == Mode::Asymmetric;
  if (shifted && are_floats(f.code_dtype))
    return {"weight_mode", codes + " codes have no zero point; use Mode.SYMMETRIC"};
  if (!shifted && f.zero_point_dtype != DType::Int32)
    return {"zero_point_dtype", "goes with Mode.ASYMMETRIC; leave it out"};
  return {};
}

// The operands of these.
constexpr OperandLine scale_line(const Rule& presence = true) {
  return {"weight_scale", Role::Input, "scale_dtype",
          parameter_shape("weight_shape", "weight_scope"), presence};
}
constexpr OperandLine zero_point_line() {
  return {"weight_zero_point", Role::Input, "zero_point_dtype",
          parameter_shape("weight_shape", "weight_scope"), is("weight_mode", Mode::Asymmetric)};
}
constexpr OperandLine tensor_scale_line() {
  return {"tensor_scale", Role::Input, DType::Float32, 1, is("scale_dtype", DType::Float8E4M3FN)};
}

// The operands of codes of a codebook, in flat blocks.
constexpr OperandLine absmax_line() {
  return {"absmax", Role::Input, when(is_set("nested_block_size"), DType::UInt8, DType::Float32),
          blocks_of("weight_shape"), is_set("block_size")};
}
constexpr OperandLine codebook_line() {
  return {"codebook", Role::Input, DType::Float32, largest_entries(DType::UInt4),
          is_set("block_size") && is("codebook", Codebook::Given)};
}
constexpr OperandLine nested_line(std::string_view name, const Rule& shape) {
  return {name, Role::Input, DType::Float32, shape, is_set("nested_block_size")};
}
constexpr OperandLine nested_absmax_line() {
  return nested_line("nested_absmax", nested_blocks_of("weight_shape"));
}
constexpr OperandLine nested_offset_line() { return nested_line("nested_offset", 1); }
constexpr OperandLine nested_codebook_line() {
  return nested_line("nested_codebook", kNestedEntries);
}

// Checks the fields of blocks but their size. `usual`: the default of weight_scope.
template <class Fields>
Fault coded_blocks(Fields& f, ScopeKind usual) {
  static constexpr DType kIndices[] = {DType::UInt4};
  if (Fault fault = checks::dtype("code_dtype", f.code_dtype, kIndices); !fault.ok()) return fault;
  std::int64_t entries = 0;
  if (Fault fault = checks::codebook("code_dtype", f.code_dtype, f.codebook, entries); !fault.ok())
    return fault;
  if (f.weight_scope.kind != usual)
    return {"weight_scope", "expected " + std::string(name_of(usual)) +
                                "(), its default, beside block_size, got " +
                                std::string(name_of(f.weight_scope.kind))};
  f.weight_scope = {usual};
  if (f.weight_mode != Mode::Symmetric)
    return {"weight_mode", "codes of a codebook have no zero point; use Mode.SYMMETRIC"};
  if (f.scale_dtype != DType::Float32)
    return {"scale_dtype", "blocks have an absmax, which is float32; leave it out"};
  return checks::nested_block_size(f.nested_block_size);
}

// Checks that there is nothing of blocks where there are none.
template <class Fields>
Fault no_blocks(const Fields& f) {
  if (f.codebook != Codebook::Nf4) return {"codebook", "goes with block_size; leave it out"};
  if (f.nested_block_size != 0) return {"nested_block_size", "goes with block_size; leave it out"};
  return {};
}

// Whether GroupsSm90 scales sums of these many terms: they are whole steps of a tensor core, and
// divide its runs, or are divided by them.
constexpr bool is_run_of_steps(std::int64_t terms, std::int64_t least) {
  constexpr std::int64_t kMost = math::kMostRunTerms;
  return terms % kMost == 0 || (terms >= least && terms < kMost && kMost % terms == 0);
}

// The same of blocks, which have to divide rows.
constexpr bool are_runs_of_blocks(std::int64_t block_size, std::int64_t terms) {
  return is_run_of_steps(block_size, 32) && terms % block_size == 0;
}

// Whether GroupsSm90 has an order for the layer's segments. Says what it takes if not.
template <class Fields>
Fault coded_runs(const Fields& f) {
  if constexpr (requires { f.block_size; })
    if (f.has_blocks()) {
      const std::int64_t terms = f.weight_shape[1];
      if (are_runs_of_blocks(f.block_size, terms)) return {};
      return {"accumulation",
              "groups_sm90 takes blocks of 32, 64 or a multiple of 128 codes that divide k = " +
                  std::to_string(terms) + ", got " + std::to_string(f.block_size)};
    }
  if (f.weight_scope.kind == ScopeKind::Channel || is_run_of_steps(f.weight_scope.size, 16))
    return {};
  return {"accumulation",
          "groups_sm90 takes groups of 16, 32, 64 or a multiple of 128 terms, got " +
              std::to_string(f.weight_scope.size)};
}

// Checks accumulation, or fills it in, where the other fields are known. Tensor cores multiply
// numbers of one 16-bit type.
template <class Fields>
Fault coded_accumulation(Fields& f) {
  const bool multiplies = f.input_dtype == f.weight_dtype && f.input_dtype != DType::Float32;
  const Fault runs = coded_runs(f);
  if (f.accumulation == Accumulation::Unset)
    f.accumulation = !multiplies ? Accumulation::Lanes
                     : runs.ok() ? Accumulation::GroupsSm90
                                 : Accumulation::TensorSm90;
  if (f.accumulation == Accumulation::Lanes) return {};
  const std::string name(name_of(f.accumulation));
  if (f.accumulation == Accumulation::Sequential)
    return {"accumulation", "expected lanes, tensor_sm90 or groups_sm90, got " + name};
  if (multiplies) return f.accumulation == Accumulation::GroupsSm90 ? runs : Fault{};
  return {"accumulation",
          "expected lanes, since " + name + " multiplies float16 or bfloat16 on both sides, got " +
              std::string(name_of(f.input_dtype)) + " and " + std::string(name_of(f.weight_dtype))};
}

template <class Fields>
Fault coded_shapes(const Fields& f) {
  if (Fault fault = checks::layer_weight(f.weight_shape); !fault.ok()) return fault;
  return checks::gemm_shapes(f.input(), f.weight());
}

// What layouts in tiles need. `usual`: the default of nibble_order.
template <class Fields>
Fault coded_layout(const Fields& f, NibbleOrder usual) {
  if (f.weight_layout == WeightLayout::RowMajor) return {};
  const std::string name(name_of(f.weight_layout));
  if (are_floats(f.code_dtype))
    return {"weight_layout", name + " is for integers, got " + std::string(name_of(f.code_dtype))};
  if (f.nibble_order != usual)
    return {"nibble_order", "weight_layout " + name + " has an order of its own; leave it out"};
  if (f.weight_layout == WeightLayout::Packed) {
    if (is_four_bit(f.code_dtype))
      return checks::shape("weight_shape", FragmentOrder::tiles(f.weight_shape), 3);
    return {"weight_layout",
            "packed is for codes of 4 bits, got " + std::string(name_of(f.code_dtype))};
  }
  if (is_unsigned(f.code_dtype))
    return {"weight_layout",
            "reordered is for signed codes, got " + std::string(name_of(f.code_dtype))};
  if (f.weight_shape[0] % mixed_dtype::kChunk == 0 && f.weight_shape[1] % mixed_dtype::kChunk == 0)
    return {};
  return {"weight_shape", "weight_layout reordered needs multiples of 64, got " +
                              shape_text(f.weight_shape.dims.data(), f.weight_shape.rank)};
}

// weight_scope: groups of a row's terms. The last group may be shorter.
template <class Fields>
Fault coded_groups(Fields& f) {
  Scope& scope = f.weight_scope;
  if (Fault fault = checks::scope(scope, f.weight_shape); !fault.ok())
    return {"weight_scope", fault.text};
  if (scope.kind == ScopeKind::Group && scope.axis == 1) return {};
  return {"weight_scope", "expected groups along the last axis, got " +
                              std::string(name_of(scope.kind)) +
                              (scope.kind == ScopeKind::Group ? "s of the other" : "")};
}

// The kind of a layer's codes in the order of GroupsSm90.
template <class Fields>
CodeKind kind_of_layer(const Fields& f) {
  CodeKind kind;
  kind.dtype = f.code_dtype;
  kind.values = f.weight_dtype;
  kind.has_codebook = f.code_dtype == DType::Float4E2M1FN;
  kind.has_zero_points = f.weight_mode == Mode::Asymmetric;
  kind.high_first = f.nibble_order == NibbleOrder::HighFirst;
  kind.has_words = f.scale_dtype == DType::Float32 && f.zero_point_dtype == DType::Int32;
  std::int64_t segment = f.weight_scope.kind == ScopeKind::Group ? f.weight_scope.size : 0;
  if constexpr (requires { f.block_size; })
    if (f.has_blocks()) {
      kind.has_codebook = true;
      kind.has_words = f.nested_block_size == 0;
      segment = f.block_size;
    }
  constexpr std::int64_t kMost = math::kMostRunTerms;
  kind.run = static_cast<int>(segment > 0 ? std::min(segment, kMost) : kMost);
  return kind;
}

// The codes of an operand, without scales and zero points.
template <class Fields>
WeightCodes stored_codes(const Fields& f, const OperandView& weight) {
  WeightCodes codes;
  codes.data = static_cast<const std::uint8_t*>(weight.data);
  codes.dtype = f.code_dtype;
  codes.values = f.weight_dtype;
  codes.nibble_order = f.nibble_order;
  codes.layout = f.weight_layout;
  const bool pairs = is_four_bit(f.code_dtype) && f.weight_layout == WeightLayout::RowMajor;
  codes.row_stride = weight.strides[0] * (pairs ? 2 : 1);
  codes.rows = f.weight_shape[0];
  codes.terms = f.weight_shape[1];
  if (f.code_dtype == DType::Float4E2M1FN) codes.codebook = kE2M1Values.data();
  return codes;
}

// Whether the scales of channels multiply whole sums. In the order of GroupsSm90 they are those of
// one group, which all terms belong to.
template <class Fields>
bool has_scales_of_columns(const Fields& f) {
  return f.weight_scope.kind == ScopeKind::Channel && f.accumulation != Accumulation::GroupsSm90;
}

// Where an operator has the operands of scales.
struct ScaleOperands {
  const OperandView &scale, &zero_point, &tensor_scale;
};

// The same with the scales and zero points of groups.
template <class Fields>
WeightCodes grouped_codes(const Fields& f, const OperandView& weight, const ScaleOperands& given) {
  WeightCodes codes = stored_codes(f, weight);
  if (has_scales_of_columns(f)) return codes;
  const bool groups = f.weight_scope.kind == ScopeKind::Group;
  // A channel's group has room for every term, and is whole runs.
  codes.segment_size =
      groups ? f.weight_scope.size
             : math::kSpans * math::span_terms(std::max<std::int64_t>(1, codes.terms));
  codes.scales.stored.absmax = given.scale.data;
  codes.scales.stored.dtype = f.scale_dtype;
  codes.scales.pitch = groups ? given.scale.strides[0] : 1;
  if (f.scale_dtype == DType::Float8E4M3FN)
    codes.scales.tensor_scale = static_cast<const float*>(given.tensor_scale.data);
  if (f.weight_mode == Mode::Asymmetric) {
    codes.zero_point = given.zero_point.data;
    codes.zero_point_dtype = f.zero_point_dtype;
    codes.zero_point_row = given.zero_point.strides[0];
  }
  return codes;
}

// Where an operator has the operands of blocks. Those that it has not are empty.
struct BlockOperands {
  const OperandView &absmax, &codebook, &nested_absmax, &nested_offset, &nested_codebook;
};

// The codes of a codebook, with the statistics of their blocks.
template <class Fields>
WeightCodes block_codes(const Fields& f, const OperandView& weight, const BlockOperands& given) {
  WeightCodes codes = stored_codes(f, weight);
  // The operand of flat codes has one axis, and no stride of rows.
  if (f.weight_layout == WeightLayout::RowMajor) codes.row_stride = codes.terms;
  codes.segment_size = f.block_size;
  codes.has_blocks = true;
  codes.codebook_is_operand = f.codebook == Codebook::Given;
  codes.codebook = codes.codebook_is_operand ? static_cast<const float*>(given.codebook.data)
                                             : math::nibble_table(f.codebook).value;
  codes.scales.pitch = codes.terms / f.block_size;
  codes.scales.stored = {
      given.absmax.data,        DType::Float32,
      f.nested_block_size,      given.nested_absmax.data,
      given.nested_offset.data, static_cast<const float*>(given.nested_codebook.data)};
  return codes;
}

}  // namespace planq::linear
