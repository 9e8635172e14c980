// Scalar arithmetic shared by both backends.
//
// Every function here is one or a few IEEE operations in a fixed order. Host code is compiled with
// -ffp-contract=off and device code with --fmad=false, so an FMA happens only where fma() is
// written.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

#include "core/host_device.h"

namespace planq::math {

template <class To, class From>
PLANQ_HD To bit_cast(From value) {
  static_assert(sizeof(To) == sizeof(From));
  To result;
  memcpy(&result, &value, sizeof(To));
  return result;
}

// The IEEE layout of a compute type C.
template <class C>
struct Ieee;
template <>
struct Ieee<float> {
  using Bits = std::uint32_t;
  static constexpr Bits kSign = 0x80000000u, kInfinity = 0x7F800000u, kNaN = 0x7FC00000u;
  static constexpr Bits kSmallestNormal = 0x00800000u;
};
template <>
struct Ieee<double> {
  using Bits = std::uint64_t;
  static constexpr Bits kSign = 0x8000000000000000u, kInfinity = 0x7FF0000000000000u,
                        kNaN = 0x7FF8000000000000u;
  static constexpr Bits kSmallestNormal = 0x0010000000000000u;
};

template <class C>
PLANQ_HD typename Ieee<C>::Bits magnitude_bits(C x) {
  return bit_cast<typename Ieee<C>::Bits>(x) & ~Ieee<C>::kSign;
}
template <class C>
PLANQ_HD bool is_finite(C x) {
  return magnitude_bits(x) < Ieee<C>::kInfinity;
}
template <class C>
PLANQ_HD bool is_nan(C x) {
  return magnitude_bits(x) > Ieee<C>::kInfinity;
}
template <class C>
PLANQ_HD C canonical_nan() {
  return bit_cast<C>(Ieee<C>::kNaN);
}
template <class C>
PLANQ_HD C smallest_normal() {
  return bit_cast<C>(Ieee<C>::kSmallestNormal);
}

template <class C>
PLANQ_HD C largest_finite() {
  return bit_cast<C>(Ieee<C>::kInfinity - 1);
}

// Round half to even.
PLANQ_HD float rne(float x) {
#if defined(__CUDA_ARCH__)
  return rintf(x);
#else
  return __builtin_rintf(x);
#endif
}
PLANQ_HD double rne(double x) {
#if defined(__CUDA_ARCH__)
  return rint(x);
#else
  return __builtin_rint(x);
#endif
}

PLANQ_HD float floor_of(float x) {
#if defined(__CUDA_ARCH__)
  return floorf(x);
#else
  return __builtin_floorf(x);
#endif
}
PLANQ_HD double floor_of(double x) {
#if defined(__CUDA_ARCH__)
  return floor(x);
#else
  return __builtin_floor(x);
#endif
}

PLANQ_HD float root(float x) {
#if defined(__CUDA_ARCH__)
  return __fsqrt_rn(x);
#else
  return __builtin_sqrtf(x);
#endif
}
PLANQ_HD double root(double x) {
#if defined(__CUDA_ARCH__)
  return __dsqrt_rn(x);
#else
  return __builtin_sqrt(x);
#endif
}

// x y + z with one rounding.
PLANQ_HD float fused(float x, float y, float z) {
#if defined(__CUDA_ARCH__)
  return fmaf(x, y, z);
#else
  return __builtin_fmaf(x, y, z);
#endif
}
PLANQ_HD double fused(double x, double y, double z) {
#if defined(__CUDA_ARCH__)
  return fma(x, y, z);
#else
  return __builtin_fma(x, y, z);
#endif
}

// Comparisons only: exact. What is not above `low` becomes `low` itself: a NaN, and -0 where low is
// +0.
template <class C>
PLANQ_HD C clamp(C x, C low, C high) {
  const C raised = x > low ? x : low;
  return raised < high ? raised : high;
}

}  // namespace planq::math
