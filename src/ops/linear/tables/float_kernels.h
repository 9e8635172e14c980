// What the kernels of operators with floating sums guarantee and refuse, on both backends, by
// accumulation and type of the input. The operator's desc.h describes itself to them as a struct
// Layer, with Fields, kName and gemm_of(call). Where weights are codes, Layer has codes_of(call),
// gemm_of(call, codes) and kind_of(fields).
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
inline constexpr std::string_view kRunsBasis =
    "tensor cores of sm_90 as measured, computed exactly; terms that share a scale meet it by fma, "
    "in eight sums that are added up in order";

constexpr std::string_view basis_of(Accumulation accumulation) {
  if (accumulation == Accumulation::Lanes) return kLanesBasis;
  return accumulation == Accumulation::GroupsSm90 ? kRunsBasis : kSlicesBasis;
}

template <Accumulation kAccumulation, DType kIn>
inline constexpr Guarantee kFloatGuarantee = {.determinism = Determinism::BitExact,
                                              .math = float_math(kAccumulation, kIn),
                                              .accumulator = DType::Float32,
                                              .rounding = Rounding::NearestEven,
                                              .max_ulp = 0,
                                              .error_bound = kNoErrorBound,
                                              .batch_invariant = true,
                                              .basis = basis_of(kAccumulation)};

// --- Tensor cores of any GPU, in the steps of TensorSm90 and GroupsSm90 --------------------------

// What kernels of an order promise: the coefficients of ErrorBound, and the basis.
struct MmaPromise {
  double constant, per_term;
  std::string_view basis;
};

// What is assumed of a tensor core: products are exact. It adds them to an accumulator in groups of
// g >= 4. Each addend is truncated to at least 23 fraction bits below the largest exponent, and the
// result to float32. So each of a group's g + 1 addends, and its result, is wrong by at most an
// epsilon of S, the sum of absolute values so far. That is (128 / g) (g + 2) <= 192 epsilons of S
// for a slice, and a 40000th more since errors enlarge the sums in between. Adding up slices costs
// half an epsilon each, at most K / 256 in all. Two scales, a bias and a residual cost two more.
inline constexpr MmaPromise kSlicesMma = {
    200, 1.0 / 256,
    "mma.sync in one order of steps along k for every tile; slices of 128 terms added up in order; "
    "what a step adds and truncates is the GPU's own"};

// The same is assumed for GroupsSm90, where S is the sum of |a| |v| |s|, and s is the scale of the
// value v. A run of r <= 128 terms is wrong by (r / g) (g + 2) <= 192 epsilons of its part of S:
// its scale multiplies the error as it does the terms. A run meets its scale by fma. That costs
// half an epsilon of what the span has so far. A span has L <= K / 8 + 128 terms, and a run at
// least 16, so that is at most L / 32 <= K / 256 + 4 epsilons of the span's part of S. The parts of
// all spans add up to S. Adding up eight spans costs four epsilons, a bias and a residual one.
// These are 201. The rest is for errors that enlarge the sums in between.
inline constexpr MmaPromise kGroupsMma = {
    208, 1.0 / 256,
    "mma.sync in one order of steps along k for every tile; terms that share a scale meet it by "
    "fma, in eight sums that are added up in order; what a step adds and truncates is the GPU's "
    "own"};

// ErrorBound::least_factor. The normal numbers of float16 begin at 2^-14. Those of bfloat16 begin
// at 2^-126, but a product is not aligned below 2^-126 either: the square of 2^-63.
constexpr double least_mma_factor(DType numbers) {
  return numbers == DType::BFloat16 ? 0x1p-63 : 0x1p-14;
}

// The type that tensor cores multiply an input in. 8-bit floating codes are widened to float16.
constexpr DType mma_numbers(DType input) {
  return input == DType::BFloat16 ? DType::BFloat16 : DType::Float16;
}

template <class Layer>
std::int64_t terms_of(const Descriptor& descriptor) {
  return descriptor.as<typename Layer::Fields>().input().terms();
}

template <class Layer, DType kIn, const MmaPromise& kPromise = kSlicesMma>
inline constexpr Guarantee kMmaGuarantee = {
    .determinism = Determinism::RunToRun,
    .math = float_math(Accumulation::TensorSm90, mma_numbers(kIn)),
    .accumulator = DType::Float32,
    .rounding = Rounding::NearestEven,
    .max_ulp = kUlpUnknown,
    .error_bound = ErrorBound{.constant = kPromise.constant,
                              .per_term = kPromise.per_term,
                              .epsilon = 0x1p-23,
                              .least_factor = least_mma_factor(mma_numbers(kIn)),
                              .output_rounding = true,
                              .terms = terms_of<Layer>},
    .batch_invariant = true,
    .basis = kPromise.basis};

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
