// Kernels of operators whose sums are floating, on both backends: what they promise and refuse, by
// the order of their sums and the type of the input. The operator's desc.h has a struct for them,
// Layer: its Fields, its name kName, and product_of(call); where weights are codes, codes_of(call)
// and product_of(call, codes).
#pragma once

#include <string_view>

#include "core/registry.h"
#include "core/rejects.h"

namespace planq::linear {

constexpr MathPrecision float_math(Accumulation accumulation, DType input) {
  if (accumulation == Accumulation::Lanes) return MathPrecision::F32;
  switch (input) {
    case DType::Float16:
      return MathPrecision::TensorCoreF16;
    case DType::BFloat16:
      return MathPrecision::TensorCoreBF16;
    case DType::Float8E4M3FN:
      return MathPrecision::TensorCoreE4M3;
    default:
      return MathPrecision::TensorCoreE5M2;
  }
}

inline constexpr std::string_view kLanesBasis =
    "32 sums by fma, each in a fixed order, added up as a fixed tree";
inline constexpr std::string_view kSlicesBasis =
    "tensor cores of sm_90 as measured, computed exactly; slices of 128 terms added up in order";

template <Accumulation kAccumulation, DType kIn>
inline constexpr Guarantee kFloatGuarantee = {
    .determinism = Determinism::BitExact,
    .math = float_math(kAccumulation, kIn),
    .accumulator = DType::Float32,
    .rounding = Rounding::NearestEven,
    .max_ulp = 0,
    .error_bound = kNoErrorBound,
    .batch_invariant = true,
    .basis = kAccumulation == Accumulation::Lanes ? kLanesBasis : kSlicesBasis};

template <class Layer>
inline constexpr bool kHasCodes = requires { Layer::codes_of; };

template <class Layer, DType kIn>
Reason rejects_input(const Descriptor& descriptor) {
  const auto& f = descriptor.as<typename Layer::Fields>();
  return expect(ReasonKind::DType, "input_dtype", kIn, f.input_dtype);
}
template <class Layer, Accumulation kAccumulation>
Reason rejects_accumulation(const Descriptor& descriptor) {
  const auto& f = descriptor.as<typename Layer::Fields>();
  return expect(ReasonKind::Feature, "accumulation", kAccumulation, f.accumulation);
}

}  // namespace planq::linear
