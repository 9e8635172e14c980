#include "ops/linear/checks.h"

#include <limits>
#include <string>

#include "math/tensor_core.h"
#include "ops/affine/checks.h"

namespace planq::checks {
namespace {

std::string text(const Shape& shape) { return shape_text(shape.dims.data(), shape.rank); }

Fault equal_terms(const linear::OperandField& input, const linear::OperandField& weight) {
  if (input.terms() == weight.terms()) return {};
  return {"weight_shape", "expected k = " + std::to_string(input.terms()) + " in the " +
                              (weight.transposed ? "last axis but one" : "last axis") +
                              ", as in input_shape " + text(input.shape) + ", got " +
                              text(weight.shape)};
}

Fault equal_batches(const Shape& input, const Shape& weight) {
  for (int back = 3; back <= input.rank && back <= weight.rank; ++back) {
    const std::int64_t a = input[input.rank - back], w = weight[weight.rank - back];
    if (a == w || a == 1 || w == 1) continue;
    return {"weight_shape", "expected leading axes that are 1 or those of input_shape " +
                                text(input) + ", got " + text(weight)};
  }
  return {};
}

}  // namespace

std::int64_t largest_code(DType dtype, Mode mode) {
  const FormatInfo& format = format_of(dtype);
  if (mode == Mode::Asymmetric || is_unsigned(dtype))
    return static_cast<std::int64_t>(format.largest - format.lowest());
  return static_cast<std::int64_t>(-format.lowest());
}

Fault sum_in_range(std::string_view field, std::int64_t terms, std::int64_t magnitude) {
  const std::int64_t most = std::numeric_limits<std::int32_t>::max() / magnitude;
  if (terms <= most) return {};
  return {std::string(field), "a sum of more than " + std::to_string(most) +
                                  " terms may leave int32, got k = " + std::to_string(terms)};
}

Fault gemm_shapes(const linear::OperandField& input, const linear::OperandField& weight) {
  if (Fault fault = shape("input_shape", input.shape, 2); !fault.ok()) return fault;
  if (Fault fault = shape("weight_shape", weight.shape, 2); !fault.ok()) return fault;
  if (Fault fault = equal_terms(input, weight); !fault.ok()) return fault;
  if (Fault fault = equal_batches(input.shape, weight.shape); !fault.ok()) return fault;
  Fault fault = shape("weight_shape", linear::gemm_shape(input, weight), 2);
  if (!fault.ok()) fault.text = "the product has " + fault.text;
  return fault;
}

Fault layer_weight(const Shape& weight) {
  if (weight.rank == 2) return {};
  return {"weight_shape", "expected (n, k), got " + text(weight)};
}

Fault addends(DType bias, DType residual) {
  if (bias != DType::Unset)
    if (Fault fault = dtype("bias_dtype", bias, kFloats); !fault.ok()) return fault;
  if (residual == DType::Unset) return {};
  return dtype("residual_dtype", residual, kFloats);
}

Fault gemm_scopes(Scope& input, const Shape& input_shape, Scope& weight,
                  const Shape& weight_shape) {
  if (input.kind != ScopeKind::Token && input.kind != ScopeKind::Tensor)
    return {"input_scope", "expected token() or tensor(), got " + std::string(name_of(input.kind))};
  if (weight.kind != ScopeKind::Channel && weight.kind != ScopeKind::Tensor)
    return {"weight_scope",
            "expected channel(0) or tensor(), got " + std::string(name_of(weight.kind))};
  if (Fault fault = scope(input, input_shape); !fault.ok()) return {"input_scope", fault.text};
  if (Fault fault = scope(weight, weight_shape); !fault.ok()) return {"weight_scope", fault.text};
  if (weight.kind == ScopeKind::Channel && weight.axis != 0)
    return {"weight_scope",
            "expected channel(0) or tensor(), got channel(" + std::to_string(weight.axis) + ")"};
  return {};
}

Fault gemm_blocks(Scope& input, const Shape& input_shape, Scope& weight,
                  const Shape& weight_shape) {
  constexpr std::int64_t kSize = math::kTensorCoreSlice;
  const auto expected = [](const char* field, const char* scope, const char* beside) {
    return Fault{field, std::string("expected ") + scope + " beside " + beside};
  };
  if (Fault fault = scope(input, input_shape); !fault.ok()) return {"input_scope", fault.text};
  if (Fault fault = scope(weight, weight_shape); !fault.ok()) return {"weight_scope", fault.text};
  if (input.kind != ScopeKind::Group || input.size != kSize || input.axis != input_shape.rank - 1)
    return expected("input_scope", "group(128) along the last axis", "block(128, 128)");
  if (weight.kind != ScopeKind::Block || weight.size != kSize ||
      weight.rows != linear::kBlockColumns)
    return expected("weight_scope", "block(128, 128)", "group(128)");
  return {};
}

Fault gemm_convention(Convention convention, Mode input, Mode weight) {
  if (convention == Convention::Planq) return {};
  if (convention != Convention::BitsAndBytes && convention != Convention::Baracuda)
    return {"convention",
            "expected planq, bitsandbytes or baracuda, got " + std::string(name_of(convention))};
  const char* const field = input != Mode::Symmetric    ? "input_mode"
                            : weight != Mode::Symmetric ? "weight_mode"
                                                        : nullptr;
  if (field)
    return {field, "convention " + std::string(name_of(convention)) + " goes with Mode.SYMMETRIC"};
  return {};
}

}  // namespace planq::checks
