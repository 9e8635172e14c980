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

Fault resolve(Descriptor& descriptor) {
  Fields& f = descriptor.as<Fields>();
  if (Fault fault = resolve_dtypes(f); !fault.ok()) return fault;
  if (Fault fault = resolve_shapes(f); !fault.ok()) return fault;
  if (Fault fault = resolve_scope(f); !fault.ok()) return fault;
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
  Scope weight_scope;
  Mode weight_mode;
  NibbleOrder nibble_order;
  WeightLayout weight_layout = WeightLayout::RowMajor;
  Accumulation accumulation = Accumulation::GroupsSm90;
};
ExpertLayer layer_of(const Fields& f) {
  const Scope scope =
      f.weight_scope.kind == ScopeKind::Token ? Scope{ScopeKind::Channel} : f.weight_scope;
  return {Shape{2, {f.columns(), f.terms()}},
          f.code_dtype,
          f.input_dtype,
          f.scale_dtype,
          f.zero_point_dtype,
          scope,
          f.weight_mode,
          f.nibble_order};
}

// The first expert's part of an operand.
OperandView of_first(const OperandView& given) {
  OperandView view = given;
  view.rank -= 1;
  std::copy_n(given.strides.begin() + 1, view.rank, view.strides.begin());
  std::copy_n(given.extents.begin() + 1, view.rank, view.extents.begin());
  return view;
}

}  // namespace

linear::CodeKind kind_of(const Fields& f) { return linear::kind_of_layer(layer_of(f)); }

linear::Experts experts_of(const Call& call) {
  const Fields& f = call.fields<Fields>();
  const Operands& operands = call.operands;
  const bool shifted = f.weight_mode == Mode::Asymmetric, biased = f.bias_dtype != DType::Unset;
  const OperandView &weight = operands[kWeight], &scale = operands[kWeightScale];
  const OperandView first = of_first(weight);
  const OperandView zero_point = shifted ? of_first(operands[kWeightZeroPoint]) : OperandView{};
  const OperandView bias = biased ? of_first(operands[kBias]) : OperandView{};
  const ExpertLayer layer = layer_of(f);
  linear::Experts experts;
  experts.codes =
      linear::grouped_codes(layer, first, {of_first(scale), zero_point, operands[kTensorScale]});
  experts.gemm =
      linear::make_gemm({f.input_shape, f.input_dtype}, {layer.weight_shape, f.input_dtype},
                        {.input = &operands[kInput],
                         .weight = &first,
                         .output = &operands[kOutput],
                         .bias = biased ? &bias : nullptr},
                        nullptr);
  experts.count = f.experts();
  experts.offset = static_cast<const std::int32_t*>(operands[kExpertOffset].data);
  experts.code_step = weight.strides[0] * (is_four_bit(f.code_dtype) ? 2 : 1);
  experts.scale_step = scale.strides[0];
  if (shifted) experts.zero_point_step = operands[kWeightZeroPoint].strides[0];
  if (biased) experts.bias_step = operands[kBias].strides[0];
  return experts;
}

}  // namespace planq::grouped_linear
