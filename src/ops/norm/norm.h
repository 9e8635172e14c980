// What rms_norm and layer_norm have in common: a call as kernels of either backend see it, checks,
// and what kernels promise.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <type_traits>

#include "core/checks.h"
#include "core/elementwise.h"
#include "core/registry.h"
#include "core/rejects.h"
#include "core/scalar.h"
#include "core/sku.h"
#include "math/ieee.h"
#include "math/tree_sum.h"
#include "ops/affine/quantized_output.h"

namespace planq::norm {

inline constexpr std::int64_t kMaxLength = 65536;
inline constexpr std::array kTypes = {DType::Float16, DType::BFloat16, DType::Float32};

// A call: rows of `length` elements. `weight` and `bias` have one for each column.
struct Norm {
  const OperandView *input = nullptr, *weight = nullptr, *bias = nullptr;
  const OperandView *residual = nullptr, *output = nullptr;  // null: there is none
  DType weight_dtype = DType::Unset, bias_dtype = DType::Unset;
  DType residual_dtype = DType::Unset, output_dtype = DType::Unset;
  FloatScalar eps{};
  float weight_offset = 0;
  bool centred = false;              // by the mean of the row
  bool round_before_weight = false;  // to the input's type
  ElementLayout layout;
  std::int64_t rows = 0;

  std::int64_t length() const { return layout.length; }
};

// Positions of tensors among the offsets of the layout.
enum Place : int { kInputPlace, kResidualPlace, kOutputPlace };

inline void lay_out(Norm& norm, const Shape& shape) {
  norm.layout = element_layout(
      shape, Scope{},
      {ElementOperand{norm.input}, ElementOperand{norm.residual}, ElementOperand{norm.output}},
      true);
  norm.rows = norm.length() == 0 ? 0 : norm.layout.rows.size();
}

// Checks the fields that both operators have, and fills in the type of the output.
template <class Fields>
Fault resolve_own(Fields& f) {
  if (Fault fault = checks::shape("shape", f.shape, 1); !fault.ok()) return fault;
  if (f.shape.last() < 1 || f.shape.last() > kMaxLength)
    return {"shape", "expected 1 to " + std::to_string(kMaxLength) +
                         " elements along the last axis, got " + std::to_string(f.shape.last())};
  if (Fault fault = checks::dtype("input_dtype", f.input_dtype, kTypes); !fault.ok()) return fault;
  if (Fault fault = checks::dtype("weight_dtype", f.weight_dtype, kTypes); !fault.ok())
    return fault;
  if (f.output_dtype == DType::Unset) f.output_dtype = f.input_dtype;
  if (Fault fault = affine::check_output_dtype(f.output_dtype); !fault.ok()) return fault;
  if (f.residual_dtype != DType::Unset)
    if (Fault fault = checks::dtype("residual_dtype", f.residual_dtype, kTypes); !fault.ok())
      return fault;
  f.weight_offset += 0.0;  // -0 and +0 make equal descriptors
  if (math::is_finite(static_cast<float>(f.weight_offset))) return {};
  return {"weight_offset", "expected a number of float32, got " + checks::number(f.weight_offset)};
}

// Behind the operator's other checks: those of codes make a descriptor of the operator.
template <class Fields>
Fault resolve_codes(const Descriptor& descriptor, Fields& f) {
  return affine::resolve(descriptor, f.shape, f.input_dtype, f.output_dtype, f.quantized);
}

// All kernels promise the same.
inline constexpr Guarantee kGuarantee = {
    .determinism = Determinism::BitExact,
    .math = MathPrecision::F32,
    .accumulator = DType::Float32,
    .rounding = Rounding::NearestEven,
    .max_ulp = 0,
    .error_bound = kNoErrorBound,
    .batch_invariant = true,
    .basis = "IEEE operations; sums of a row by a tree that its length fixes; no atomics"};

template <class Fields, DType kInputType, DType kOutputType>
Reason rejects(const Descriptor& descriptor, const Device&) {
  const auto& f = descriptor.as<Fields>();
  const Reason reason = expect(ReasonKind::DType, "input_dtype", kInputType, f.input_dtype);
  if (!reason.accepted()) return reason;
  return expect(ReasonKind::DType, "output_dtype", kOutputType, f.output_dtype);
}

// The kernels of one input type, by make(type of the output).
template <class Make>
constexpr std::array<Kernel, 3> kernels_of_outputs(const Make& make) {
  return {make(std::integral_constant<DType, DType::Float16>{}),
          make(std::integral_constant<DType, DType::BFloat16>{}),
          make(std::integral_constant<DType, DType::Float32>{})};
}

}  // namespace planq::norm
