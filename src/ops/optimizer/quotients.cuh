// The quotients that updates are, numerator / (root(radicand) + eps), for several elements at a
// time: where none of them is special, by the steps that the compiler's own root and division take,
// without their tests of each operand.
//
// Root. 2^64 radicand is exact, and normal where it is not 0; of it the estimate of a reciprocal
// root and one correction give the root rounded once, as __fsqrt_rn does for all numbers of this
// range. The root times 2^-32 is exact, so that the sum with eps is rounded once as well. 2^-110 is
// too small to change 2^64 times a number other than 0; in the place of 0 it has a root, which
// times 2^-32 is too small to change eps.
//
// Division. cuda/codes.cuh has the proof that one correction by a reciprocal that is rounded
// correctly gives the quotient. The bounds below keep every step inside the normal numbers: with
// 2^-60 <= eps <= 2^20 and radicand <= 2^40 the divisor lies between 2^-60 and 2^21, and of a
// numerator between 2^-76 and 2^60 the quotient and the errors that it is corrected by are normal.
// That of 0 is 0 with the numerator's sign, as signed_quotient() has it.
#pragma once

#include "cuda/estimates.cuh"
#include "ops/affine/affine.cuh"
#include "ops/codebook/absmax.cuh"
#include "ops/optimizer/arithmetic.h"

namespace planq::optimizer::cuda {

inline constexpr float kLeastEps = 0x1p-60f, kMostEps = 0x1p20f, kMostRadicand = 0x1p40f,
                       kLeastNumerator = 0x1p-76f, kMostNumerator = 0x1p60f;

// The largest magnitude of several; NaN if one is.
template <int kCount>
__device__ __forceinline__ float largest_or_nan(const float (&x)[kCount]) {
  float most = fabsf(x[0]);
#pragma unroll
  for (int j = 1; j < kCount; ++j) most = planq::cuda::larger_magnitude(most, x[j]);
  return most;
}
// The largest of their bits: those of a number below 0 are larger than all others.
template <int kCount>
__device__ __forceinline__ std::uint32_t most_bits(const float (&x)[kCount]) {
  std::uint32_t most = __float_as_uint(x[0]);
#pragma unroll
  for (int j = 1; j < kCount; ++j) most = max(most, __float_as_uint(x[j]));
  return most;
}

template <int kCount>
__device__ __forceinline__ bool are_zero_or_large(const float (&x)[kCount]) {
  float least = fabsf(x[0]);
#pragma unroll
  for (int j = 1; j < kCount; ++j) least = fminf(least, fabsf(x[j]));
  if (least >= kLeastNumerator) return true;
  bool fits = true;
#pragma unroll
  for (int j = 0; j < kCount; ++j) fits = fits && (x[j] == 0 || fabsf(x[j]) >= kLeastNumerator);
  return fits;
}

// Whether ordinary_quotient() may take them.
template <int kCount>
__device__ __forceinline__ bool are_ordinary(const float (&numerators)[kCount],
                                             const float (&radicands)[kCount], float eps) {
  return eps >= kLeastEps && eps <= kMostEps &&
         most_bits(radicands) <= __float_as_uint(kMostRadicand) &&
         largest_or_nan(numerators) <= kMostNumerator && are_zero_or_large(numerators);
}

// fl(fl(root(radicand)) + eps)
__device__ __forceinline__ float ordinary_divisor(float radicand, float eps) {
  const float raised = __fmaf_rn(radicand, 0x1p64f, 0x1p-110f);
  const float estimate = planq::cuda::inverse_root_estimate(raised);
  const float near = __fmul_rn(raised, estimate);
  const float error = __fmaf_rn(-near, near, raised);
  const float root = __fmaf_rn(error, __fmul_rn(estimate, 0.5f), near);
  return __fmaf_rn(root, 0x1p-32f, eps);
}
__device__ __forceinline__ float ordinary_quotient(float numerator, float radicand, float eps) {
  const float divisor = ordinary_divisor(radicand, eps);
  return planq::cuda::signed_quotient<true>(numerator, divisor, planq::cuda::inverse_of(divisor));
}

// Any. Not inlined, because few elements need it.
inline __device__ __noinline__ float quotient_aside(float numerator, float radicand, float eps) {
  return numerator / (root(radicand) + eps);
}

}  // namespace planq::optimizer::cuda
