#include "ops/linear/grouped_linear/desc.h"

#include <string>

#include "core/rows.h"

namespace planq::grouped_linear {

namespace {

constexpr DType kInputs[] = {DType::BFloat16, DType::Float16};
constexpr DType kCodes[] = {DType::UInt4, DType::Int4,         DType::Float4E2M1FN, DType::Int8,
                            DType::UInt8, DType::Float8E4M3FN, DType::Float8E5M2};

Fault resolve_dtypes(Fields& f) {
  if (Fault fault = checks::dtype("input_dtype", f.input_dtype, kInputs); !fault.ok()) return fault;
  if (Fault fault = checks::dtype("code_dtype", f.code_dtype, kCodes); !fault.ok()) return fault;
  if (f.output_dtype == DType::Unset) f.output_dtype = f.input_dtype;
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

Fault resolve(Descriptor& descriptor) {
  Fields& f = descriptor.as<Fields>();
  if (Fault fault = resolve_dtypes(f); !fault.ok()) return fault;
  if (Fault fault = resolve_shapes(f); !fault.ok()) return fault;
  if (Fault fault = f.has_blocks() ? resolve_blocks(f) : resolve_groups(f); !fault.ok())
    return fault;
  return linear::coded_parameters(f);
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

// The same of operands that have an axis of experts.
void take_groups(const Fields& f, const Operands& operands, linear::Experts& experts) {
  const bool shifted = f.weight_mode == Mode::Asymmetric;
  const OperandView &weight = operands[kWeight], &scale = operands[kWeightScale];
  const OperandView& zero_point = operands[kWeightZeroPoint];
  experts.codes = linear::grouped_codes(
      layer_of(f), of_first(weight),
      {of_first(scale), shifted ? of_first(zero_point) : OperandView{}, operands[kTensorScale]});
  experts.code_step = weight.strides[0] * (is_four_bit(f.code_dtype) ? 2 : 1);
  experts.scale_step = scale.strides[0];
  if (shifted) experts.zero_point_step = zero_point.strides[0];
}

}  // namespace

linear::Experts experts_of(const Call& call) {
  const Fields& f = call.fields<Fields>();
  const Operands& operands = call.operands;
  const bool biased = f.bias_dtype != DType::Unset;
  const OperandView bias = biased ? of_first(operands[kBias]) : OperandView{};
  linear::Experts experts;
  experts.gemm =
      linear::make_gemm({f.input_shape, f.input_dtype}, {layer_of(f).weight_shape, f.input_dtype},
                        {.input = &operands[kInput],
                         .weight = &operands[kWeight],
                         .output = &operands[kOutput],
                         .bias = biased ? &bias : nullptr},
                        nullptr);
  experts.count = f.experts();
  experts.offset = static_cast<const std::int32_t*>(operands[kExpertOffset].data);
  if (biased) experts.bias_step = operands[kBias].strides[0];
  f.has_blocks() ? take_blocks(f, operands, experts) : take_groups(f, operands, experts);
  return experts;
}

}  // namespace planq::grouped_linear
