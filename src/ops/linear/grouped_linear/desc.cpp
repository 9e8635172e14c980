#include "ops/linear/grouped_linear/desc.h"

#include <string>

#include "core/rows.h"

namespace planq::grouped_linear {

namespace {

constexpr DType kInputs[] = {DType::BFloat16, DType::Float16, DType::Int8, DType::Float8E4M3FN,
                             DType::Float8E5M2};
constexpr DType kCodes[] = {DType::UInt4, DType::Int4,         DType::Float4E2M1FN, DType::Int8,
                            DType::UInt8, DType::Float8E4M3FN, DType::Float8E5M2};
// Those that inputs of int8 and of floats meet.
constexpr DType kIntegers[] = {DType::Int8}, kFloats[] = {DType::Float8E4M3FN, DType::Float8E5M2};

std::string beside_input(const Fields& f) {
  return " beside input_dtype " + std::string(name_of(f.input_dtype));
}

Fault resolve_dtypes(Fields& f) {
  if (Fault fault = checks::dtype("input_dtype", f.input_dtype, kInputs); !fault.ok()) return fault;
  if (Fault fault = checks::dtype("code_dtype", f.code_dtype, kCodes); !fault.ok()) return fault;
  if (f.output_dtype == DType::Unset) {
    if (f.has_codes_as_input())
      return {"output_dtype", "is required" + beside_input(f) + ": float16, bfloat16 or float32"};
    f.output_dtype = f.input_dtype;
  }
  if (Fault fault = checks::dtype("output_dtype", f.output_dtype, checks::kSumOutputs); !fault.ok())
    return fault;
  return checks::addends(f.bias_dtype, DType::Unset);
}

Fault resolve_shapes(const Fields& f) {
  const auto text = [](const Shape& shape) { return shape_text(shape.dims.data(), shape.rank); };
  if (f.input_shape.rank != 2)
    return {"input_shape", "expected (m, k), got " + text(f.input_shape)};
  if (f.weight_shape.rank != 3)
    return {"weight_shape", "expected (experts, n, k), got " + text(f.weight_shape)};
  if (f.experts() < 1 || f.experts() > linear::kMostExperts)
    return {"weight_shape", "expected 1 to " + std::to_string(linear::kMostExperts) +
                                " experts, got " + std::to_string(f.experts())};
  if (f.terms() == f.input_shape[1]) return {};
  return {"weight_shape", "expected k = " + std::to_string(f.input_shape[1]) + ", got " +
                              std::to_string(f.terms())};
}

// weight_scope: a scale for each row of the weights, or for groups of a row's terms.
Fault resolve_scope(Fields& f) {
  Scope& scope = f.weight_scope;
  if (Fault fault = checks::scope(scope, f.weight_shape); !fault.ok())
    return {"weight_scope", fault.text};
  if (scope.kind == ScopeKind::Token) return {};
  if (scope.kind != ScopeKind::Group || scope.axis != 2)
    return {"weight_scope", "expected token() or groups along the last axis, got " +
                                std::string(name_of(scope.kind)) +
                                (scope.kind == ScopeKind::Group ? "s of another" : "")};
  if (linear::is_run_of_steps(scope.size, 16)) return {};
  return {"weight_scope", "expected groups of 16, 32, 64 or a multiple of 128 terms, got " +
                              std::to_string(scope.size)};
}

// Blocks may not run on from row to row, nor so from expert to expert.
Fault resolve_blocks(Fields& f) {
  if (Fault fault = linear::coded_blocks(f, ScopeKind::Token); !fault.ok()) return fault;
  if (linear::are_runs_of_blocks(f.block_size, f.terms())) return {};
  return {"block_size", "expected 32, 64 or a multiple of 128 that divides k = " +
                            std::to_string(f.terms()) + ", got " + std::to_string(f.block_size)};
}

Fault resolve_groups(Fields& f) {
  if (Fault fault = linear::no_blocks(f); !fault.ok()) return fault;
  return resolve_scope(f);
}

// Weights alone are codes.
Fault resolve_weights(Fields& f) {
  if (f.input_scope.kind != ScopeKind::Token)
    return {"input_scope",
            "goes with an input of int8, float8_e4m3fn or float8_e5m2; leave it out"};
  f.input_scope = {ScopeKind::Token};
  if (Fault fault = f.has_blocks() ? resolve_blocks(f) : resolve_groups(f); !fault.ok())
    return fault;
  return linear::coded_parameters(f);
}

// Scales of rows on both sides or, of floats, of blocks.
Fault resolve_both_scopes(Fields& f) {
  const bool has_blocks =
      f.input_scope.kind == ScopeKind::Group || f.weight_scope.kind == ScopeKind::Block;
  if (has_blocks && is_fp8(f.input_dtype))
    return checks::gemm_blocks(f.input_scope, f.input_shape, f.weight_scope, f.weight_shape);
  const auto is_of_rows = [&](const char* field, Scope& scope) -> Fault {
    if (scope.kind != ScopeKind::Token)
      return {field,
              "expected token()" + beside_input(f) + ", got " + std::string(name_of(scope.kind))};
    scope = {ScopeKind::Token};
    return {};
  };
  if (Fault fault = is_of_rows("input_scope", f.input_scope); !fault.ok()) return fault;
  return is_of_rows("weight_scope", f.weight_scope);
}

// What weights alone may have beside codes.
Fault no_options_of_weights(const Fields& f) {
  if (f.has_blocks())
    return {"block_size", "goes with an input of bfloat16 or float16; leave it out"};
  if (Fault fault = linear::no_blocks(f); !fault.ok()) return fault;
  if (f.weight_mode != Mode::Symmetric)
    return {"weight_mode", "there are no zero points" + beside_input(f) + "; use Mode.SYMMETRIC"};
  if (f.scale_dtype != DType::Float32)
    return {"scale_dtype",
            "expected float32" + beside_input(f) + ", got " + std::string(name_of(f.scale_dtype))};
  return linear::coded_parameters(f);
}

// Both sides are codes of one kind, and sums meet their scales.
Fault resolve_both(Fields& f) {
  const bool integers = f.input_dtype == DType::Int8;
  const auto codes = integers ? std::span<const DType>(kIntegers) : std::span<const DType>(kFloats);
  if (Fault fault = checks::dtype("code_dtype", f.code_dtype, codes); !fault.ok())
    return {fault.field, fault.text + beside_input(f)};
  if (Fault fault = no_options_of_weights(f); !fault.ok()) return fault;
  if (Fault fault = resolve_both_scopes(f); !fault.ok() || !integers) return fault;
  const std::int64_t largest = checks::largest_code(DType::Int8, Mode::Symmetric);
  return checks::sum_in_range("input_shape", f.terms(), largest * largest);
}

Fault resolve(Descriptor& descriptor) {
  Fields& f = descriptor.as<Fields>();
  if (Fault fault = resolve_dtypes(f); !fault.ok()) return fault;
  if (Fault fault = resolve_shapes(f); !fault.ok()) return fault;
  return f.has_codes_as_input() ? resolve_both(f) : resolve_weights(f);
}

}  // namespace

extern const KernelTables kTables;
extern const Operator kOperator;
const Operator kOperator = {"grouped_linear", kFields, kOperands, resolve, rows::apart, kTables};

namespace {

// The layer of one expert, as weight_only_layer.h reads layers.
struct ExpertLayer {
  Shape weight_shape;
  DType code_dtype, weight_dtype, scale_dtype, zero_point_dtype;
  Codebook codebook;
  std::int64_t block_size, nested_block_size;
  Scope weight_scope;
  Mode weight_mode;
  NibbleOrder nibble_order;
  WeightLayout weight_layout = WeightLayout::RowMajor;
  Accumulation accumulation = Accumulation::GroupsSm90;

  bool has_blocks() const { return block_size > 0; }
};
ExpertLayer layer_of(const Fields& f) {
  const Scope scope =
      f.weight_scope.kind == ScopeKind::Token ? Scope{ScopeKind::Channel} : f.weight_scope;
  return {Shape{2, {f.columns(), f.terms()}},
          f.code_dtype,
          f.input_dtype,
          f.scale_dtype,
          f.zero_point_dtype,
          f.codebook,
          f.block_size,
          f.nested_block_size,
          scope,
          f.weight_mode,
          f.nibble_order};
}

// The first expert's part of an operand with an axis of experts.
OperandView of_first(const OperandView& given) {
  OperandView view = given;
  view.rank -= 1;
  std::copy_n(given.strides.begin() + 1, view.rank, view.strides.begin());
  std::copy_n(given.extents.begin() + 1, view.rank, view.extents.begin());
  return view;
}

}  // namespace

linear::CodeKind kind_of(const Fields& f) { return linear::kind_of_layer(layer_of(f)); }

namespace {

// The codes of the first expert and the way to the next, of experts that lie one after another.
void take_blocks(const Fields& f, const Operands& operands, linear::Experts& experts) {
  experts.codes =
      linear::block_codes(layer_of(f), operands[kWeight],
                          {operands[kAbsmax], operands[kCodebook], operands[kNestedAbsmax],
                           operands[kNestedOffset], operands[kNestedCodebook]});
  experts.code_step = f.columns() * f.terms();
  experts.scale_step = f.columns() * experts.codes.scales.pitch;
}

// The codes of the first expert, and its zero points, where operands have an axis of experts.
void take_groups(const Fields& f, const Operands& operands, linear::Experts& experts) {
  const bool shifted = f.weight_mode == Mode::Asymmetric;
  const OperandView& zero_point = operands[kWeightZeroPoint];
  experts.codes = linear::grouped_codes(
      layer_of(f), of_first(operands[kWeight]),
      {of_first(operands[kWeightScale]), shifted ? of_first(zero_point) : OperandView{},
       operands[kTensorScale]});
  if (shifted) experts.zero_point_step = zero_point.strides[0];
}

}  // namespace

linear::Experts experts_of(const Call& call) {
  const Fields& f = call.fields<Fields>();
  const Operands& operands = call.operands;
  const bool scaled = f.has_codes_as_input(), biased = f.bias_dtype != DType::Unset;
  const auto first = [&](bool present, Operand operand) {
    return present ? of_first(operands[operand]) : OperandView{};
  };
  const OperandView weight = first(!f.has_blocks(), kWeight);
  const OperandView weight_scale = first(scaled, kWeightScale), bias = first(biased, kBias);
  linear::Experts experts;
  experts.gemm = linear::make_gemm({f.input_shape, f.input_dtype},
                                   {Shape{2, {f.columns(), f.terms()}}, f.code_dtype},
                                   {.input = &operands[kInput],
                                    .weight = &weight,
                                    .output = &operands[kOutput],
                                    .input_scale = scaled ? &operands[kInputScale] : nullptr,
                                    .weight_scale = scaled ? &weight_scale : nullptr,
                                    .bias = biased ? &bias : nullptr});
  experts.count = f.experts();
  experts.offset = static_cast<const std::int32_t*>(operands[kExpertOffset].data);
  if (biased) experts.bias_step = operands[kBias].strides[0];
  if (f.has_blocks()) {
    take_blocks(f, operands, experts);
  } else {
    experts.code_step = operands[kWeight].strides[0] * (is_four_bit(f.code_dtype) ? 2 : 1);
    experts.scale_step = operands[kWeightScale].strides[0];
    if (!scaled) take_groups(f, operands, experts);
  }
  if (!scaled) experts.gemm.weight = {.dtype = f.input_dtype};
  return experts;
}

}  // namespace planq::grouped_linear
