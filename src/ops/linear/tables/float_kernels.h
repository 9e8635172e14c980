// Kernels of operators whose sums are floating, on both backends: what they promise and refuse, by
// the order of their sums and the type of the input. The operator's desc.h has a struct for them,
// Layer: its Fields, its name kName, and gemm_of(call); where weights are codes, codes_of(call)
// and gemm_of(call, codes).
#pragma once

#include <string_view>

#include "core/registry.h"
#include "core/rejects.h"
#include "ops/linear/vocabulary.h"

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

// --- Tensor cores of any GPU, in the steps of TensorSm90 -----------------------------------------

inline constexpr std::string_view kMmaBasis =
    "mma.sync in one order of steps along k for every tile; slices of 128 terms added up in order; "
    "what a step adds and truncates is the GPU's own";

// What is assumed of a tensor core: products are exact; it adds them to an accumulator in groups of
// at least four, each addend truncated to 23 or more fraction bits below the largest exponent, and
// truncates the result to float32. So each of the g + 1 addends of a group, and its result, is
// wrong by up to an epsilon of the sum of absolute values so far, S: by (128 / g) (g + 2) <= 192
// epsilons of S at the end of a slice. Of the larger sums in between, which have these errors, it
// is a 40000th more. Slices are added with half an epsilon each, at most K / 256 for all. Two
// scales, a bias and a residual add two epsilons more.
inline constexpr double kMmaConstant = 200, kMmaPerTerm = 1.0 / 256;
// The exponent of a product is that of its factors, which float16 bounds by -14. Those of bfloat16
// reach what float32 holds: the floor under all sums, of 2^-126, is this number's square.
constexpr double least_mma_factor(DType numbers) {
  return numbers == DType::BFloat16 ? 0x1p-63 : 0x1p-14;
}

// In what tensor cores multiply an input; 8-bit floating codes are numbers of float16.
constexpr DType mma_numbers(DType input) {
  return input == DType::BFloat16 ? DType::BFloat16 : DType::Float16;
}

template <class Layer>
std::int64_t terms_of(const Descriptor& descriptor) {
  return descriptor.as<typename Layer::Fields>().input().terms();
}

template <class Layer, DType kIn>
inline constexpr Guarantee kMmaGuarantee = {
    .determinism = Determinism::RunToRun,
    .math = float_math(Accumulation::TensorSm90, mma_numbers(kIn)),
    .accumulator = DType::Float32,
    .rounding = Rounding::NearestEven,
    .max_ulp = kUlpUnknown,
    .error_bound = ErrorBound{.constant = kMmaConstant,
                              .per_term = kMmaPerTerm,
                              .epsilon = 0x1p-23,
                              .least_factor = least_mma_factor(mma_numbers(kIn)),
                              .output_rounding = true,
                              .terms = terms_of<Layer>},
    .batch_invariant = true,
    .basis = kMmaBasis};

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
