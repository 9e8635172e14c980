// Vectors of elements under a given scale and zero point: the fast ways to the bits of
// affine/affine.h, and the test that says when a vector has to take the slow one.
#pragma once

#include "ops/affine/elementwise/kernels.cuh"

namespace planq::cuda {

// A given scale and zero point as the loops over elements want them.
template <class C>
struct GivenNumbers {
  C scale, inverse;
  C low, high;  // bounds of the rounded quotient, exact where `fast_is_exact`
  std::int32_t zero_point;
  bool fast_is_exact;  // quotients up to kLargeQuotient are fast and exact, products with codes
                       // finite

  __device__ __forceinline__ math::SegmentParameters<C> segment() const {
    return {scale, inverse, zero_point, false};
  }
};

template <bool kDivide, class C>
__device__ __forceinline__ GivenNumbers<C> given_numbers(const math::AffineSpec<C>& spec,
                                                         const GivenParameters& given,
                                                         const StoredParameters<C>& stored) {
  const C scale = stored.scale, zero = static_cast<C>(stored.zero_point);
  const std::int32_t zero_point = stored.zero_point;
  const bool window = !kDivide || (scale >= kSmallScale<C> && scale <= kLargeScale<C>);
  const bool fast_is_exact = window && math::is_finite(scale) && zero_point <= kLargeZeroPoint &&
                             zero_point >= -kLargeZeroPoint;
  C inverse;
  if constexpr (kDivide)
    inverse = inverse_of(scale);  // of a scale in the window; no other is divided by this way
  else if (given.factor)
    inverse = stored.factor;
  else
    inverse = math::given_parameters(spec, scale, zero_point).inverse;
  return {scale, inverse, spec.q_min - zero, spec.q_max - zero, zero_point, fast_is_exact};
}

// The same for affine/affine.h alone.
template <class C>
__device__ __forceinline__ math::SegmentParameters<C> given_segment(const math::AffineSpec<C>& spec,
                                                                    const GivenParameters& given,
                                                                    const ElementOffsets& at) {
  const auto stored = given.read_one<C>(at);
  auto segment = math::given_parameters(spec, stored.scale, stored.zero_point);
  if (given.factor) segment.inverse = stored.factor;
  return segment;
}

// cuda::quotient() with the signs of its terms turned around, so that a zero keeps its own: the
// error of an exact product is +0 either way, and -inverse makes that the zero which a sum ignores.
template <bool kDivide>
__device__ __forceinline__ float signed_quotient(float x, float scale, float inverse) {
  const float product = __fmul_rn(x, inverse);
  if (!kDivide) return product;
  return __fmaf_rn(__fmaf_rn(product, scale, -x), -inverse, product);
}
template <bool kDivide>
__device__ __forceinline__ double signed_quotient(double x, double scale, double inverse) {
  const double product = __dmul_rn(x, inverse);
  if (!kDivide) return product;
  const double nearer = __fma_rn(__fma_rn(product, scale, -x), -inverse, product);
  return __fma_rn(__fma_rn(nearer, scale, -x), -inverse, nearer);
}

// The quotient, exact as far as it is at most `largest`; beyond, and for a NaN, `needs_slow_path`
// is set. kSigned: a zero has the sign of x.
template <bool kDivide, bool kSigned = false, class C>
__device__ __forceinline__ C checked_quotient(C x, const GivenNumbers<C>& n, bool& needs_slow_path,
                                              C largest = kLargeQuotient<C>) {
  const C q = kSigned ? signed_quotient<kDivide>(x, n.scale, n.inverse)
                      : quotient<kDivide>(x, n.scale, n.inverse);
  needs_slow_path |= !(fabs(q) <= largest);
  return q;
}

// Where the quotient needs no slow path. double has no instruction for a maximum.
__device__ __forceinline__ float bounded(float q, const GivenNumbers<float>& n) {
  return fminf(fmaxf(q, n.low), n.high);
}
__device__ __forceinline__ double bounded(double q, const GivenNumbers<double>& n) {
  const double raised = q > n.low ? q : n.low;
  return raised < n.high ? raised : n.high;
}

// Rounds |q| <= kLargeQuotient to an integer that is never -0.
__device__ __forceinline__ float rounded_value(float q) {
  return __fadd_rn(__fadd_rn(q, 0x1.8p+23f), -0x1.8p+23f);
}
__device__ __forceinline__ double rounded_value(double q) {
  return __dadd_rn(__dadd_rn(q, 0x1.8p+52), -0x1.8p+52);
}

// --- Vectors of stored elements ----------------------------------------------------------------

template <class T, int kCount>
using VectorOf =
    std::conditional_t<sizeof(T) * kCount == 16, uint4, Word<static_cast<int>(sizeof(T)) * kCount>>;

template <class V>
__device__ __forceinline__ V load_vector(const void* address) {
  if constexpr (sizeof(V) == 16)
    return load_once(address);
  else
    return load_single(static_cast<const V*>(address));
}
template <class V>
__device__ __forceinline__ void store_elements(void* address, V vector) {
  if constexpr (sizeof(V) == 16)
    store_vector(address, vector);
  else
    store_once(static_cast<V*>(address), vector);
}

// Values rounded to the stored type. A NaN is not made the canonical one.
template <class T, int kCount>
__device__ __forceinline__ VectorOf<T, kCount> narrow_vector(
    const math::Compute<T> (&values)[kCount]) {
  VectorOf<T, kCount> vector;
  static_assert(sizeof vector == kCount * sizeof(T));
  if constexpr (sizeof(T) == 2) {
    std::uint32_t pairs[kCount / 2];
#pragma unroll
    for (int j = 0; j < kCount; j += 2) pairs[j / 2] = pair_of(values[j], values[j + 1], T{});
    memcpy(&vector, pairs, sizeof vector);
  } else {
    memcpy(&vector, values, sizeof vector);
  }
  return vector;
}

template <class C, int kCount>
__device__ __forceinline__ bool any_nan(const C (&values)[kCount]) {
  bool found = false;
#pragma unroll
  for (int j = 0; j < kCount; ++j) found |= values[j] != values[j];
  return found;
}

// --- Codes in halves of words ------------------------------------------------------------------

// Quotients and zero points up to this one have their sum in 16 bits.
inline constexpr std::int32_t kLargeHalf = 1 << 13;

// The low 16 bits of two words.
__device__ __forceinline__ std::uint32_t halves(std::uint32_t first, std::uint32_t second) {
  return __byte_perm(first, second, 0x5410);
}
__device__ __forceinline__ std::uint32_t twice(std::int32_t value) {
  return halves(static_cast<std::uint32_t>(value), static_cast<std::uint32_t>(value));
}

// clamp(steps + zero point) of two integers in the halves of a word, by one instruction for the sum
// and one bound, and one for the other bound.
__device__ __forceinline__ std::uint32_t bounded_halves(std::uint32_t steps, std::uint32_t zeros,
                                                        std::uint32_t lows, std::uint32_t highs) {
  return __vmins2(__viaddmax_s16x2(steps, zeros, lows), highs);
}

// Codes in the halves of words, as they lie in memory.
template <Codes kCodes, int kCount>
__device__ __forceinline__ auto pack_halves(const std::uint32_t (&pairs)[(kCount + 1) / 2],
                                            NibbleOrder order) {
  std::uint32_t codes[kCount];
#pragma unroll
  for (int j = 0; j < kCount; ++j) codes[j] = j & 1 ? pairs[j / 2] >> 16 : pairs[j / 2];
  if constexpr (kCount >= 4) {
    const std::uint32_t bytes =
        kCodes == Codes::Nibble && order != NibbleOrder::LowFirst ? 0x4602u : 0x6420u;
    std::uint32_t quads[kCount / 4];
#pragma unroll
    for (int j = 0; j < kCount / 4; ++j) {
      quads[j] = __byte_perm(pairs[2 * j], pairs[2 * j + 1], bytes);
      if constexpr (kCodes == Codes::Nibble) {
        quads[j] &= 0x0F0F0F0Fu;
        quads[j] |= quads[j] >> 4;  // bytes 0 and 2 hold two codes each
      }
    }
    if constexpr (kCodes == Codes::Nibble && kCount == 8)
      return static_cast<std::uint32_t>(__byte_perm(quads[0], quads[1], 0x6420));
    else if constexpr (kCodes == Codes::Nibble)
      return static_cast<std::uint16_t>(__byte_perm(quads[0], 0, 0x0020));
    else if constexpr (kCount == 8)
      return static_cast<std::uint64_t>(quads[1]) << 32 | quads[0];
    else
      return quads[0];
  } else {
    return pack<kCodes>(codes, order);
  }
}

// Codes, each in the low bits of its word, as they lie in memory.
template <Codes kCodes, int kCount>
__device__ __forceinline__ auto pack_codes(const std::uint32_t (&codes)[kCount],
                                           NibbleOrder order) {
  return pack<kCodes == Codes::Nibble ? Codes::Nibble : Codes::Byte>(codes, order);
}

}  // namespace planq::cuda
