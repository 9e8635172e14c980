// From vectors of elements to words of codes, for segments whose numbers are ordinary. The results
// are those of math::code_of for every element; is_fast() says for which segments that holds, and
// the others take math::code_of itself.
//
// DIVIDE. With r = fl(1/s): t = fl(x r), e = fma(-t, s, x), fma(e, r, t) = fl(x/s) as long as
// nothing overflows or underflows. float32: |t - x/s| < 2 ulp, so the last sum errs by less than
// 2^-22 ulp before it rounds, and only quotients that near to a midpoint of two floats could round
// wrongly. x/s = midpoint + c / (2 s) ulp with x, s 24-bit integers and c an integer, so |c| <= 8:
// the test suite solves x 2^24 = c or x 2^25 = c (mod s) for every s and checks all solutions.
// float64 takes one more correction, so that t is within one ulp, and Markstein's theorem (r
// correctly rounded, t faithful) gives equality. Underflow: s >= 2^-70 (2^-700) keeps e exact for
// |x/s| >= 2^-20. A smaller quotient only has to stay small and keep its sign: its integer code is
// that of 0, its fp8 code a signed 0. e = +0 would turn -0 into +0, so fp8 takes the sign from x.
#pragma once

#include "ops/dynamic_range_quantize/extents.cuh"

namespace planq::dynamic_range_quantize {

enum class Codes { Byte, Nibble, Float8 };

constexpr Codes codes_of(DType output) {
  return is_fp8(output) ? Codes::Float8 : is_four_bit(output) ? Codes::Nibble : Codes::Byte;
}

// Bytes of the codes of one vector.
template <class In, Codes kCodes>
inline constexpr int kWordBytes = kPerVector<In> / (kCodes == Codes::Nibble ? 2 : 1);

template <class C>
inline constexpr C kSmallScale = sizeof(C) == 4 ? C(0x1p-70) : C(0x1p-700);
template <class C>
inline constexpr C kLargeScale = sizeof(C) == 4 ? C(0x1p+70) : C(0x1p+700);
// Bounds |x/s|, so that the sums in integer_bits() are exact.
template <class C>
inline constexpr C kLargeQuotient = sizeof(C) == 4 ? C(0x1p+21) : C(0x1p+29);
inline constexpr std::int32_t kLargeZeroPoint = 1 << 21;

// Whether encode() below gives the codes of a segment with this range, whose elements all are
// finite.
template <class C>
__device__ __forceinline__ bool is_fast(const math::AffineRecipe<C>& recipe,
                                        const math::SegmentParameters<C>& segment,
                                        const math::Range<C>& range) {
  const C below = range.low < C{0} ? -range.low : range.low;
  const C above = range.high < C{0} ? -range.high : range.high;
  const C peak = below > above ? below : above;
  const bool window = recipe.quotient != Quotient::Divide ||
                      (segment.scale >= kSmallScale<C> && segment.scale <= kLargeScale<C>);
  const bool bounds = !is_fp8(recipe.output_dtype) || recipe.q_min < C{0};
  return window && bounds && !range.special && peak * segment.inverse <= kLargeQuotient<C> &&
         segment.zero_point <= kLargeZeroPoint && segment.zero_point >= -kLargeZeroPoint;
}

template <bool kDivide>
__device__ __forceinline__ float quotient(float x, float scale, float inverse) {
  const float product = __fmul_rn(x, inverse);
  if (!kDivide) return product;
  const float error = __fmaf_rn(-product, scale, x);
  return __fmaf_rn(error, inverse, product);
}
template <bool kDivide>
__device__ __forceinline__ double quotient(double x, double scale, double inverse) {
  const double product = __dmul_rn(x, inverse);
  if (!kDivide) return product;
  const double nearer = __fma_rn(__fma_rn(-product, scale, x), inverse, product);
  return __fma_rn(__fma_rn(-nearer, scale, x), inverse, nearer);
}

// The code of clamp(rne(quotient) + zero_point) in the low byte; other bits are arbitrary.
// 1.5 * 2^23 puts the rounded integer into the low bits of the sum. Clamping to integers commutes
// with rounding, and both sums after that are exact. The bounds are the same for a whole segment.
__device__ __forceinline__ std::uint32_t integer_bits(float quotient, std::int32_t zero_point,
                                                      const math::AffineRecipe<float>& recipe) {
  const float zero = static_cast<float>(zero_point);
  const float bounded = fminf(fmaxf(quotient, recipe.q_min - zero), recipe.q_max - zero);
  return __float_as_uint(__fadd_rn(__fadd_rn(bounded, 0x1.8p+23f), zero));
}
__device__ __forceinline__ std::uint32_t integer_bits(double quotient, std::int32_t zero_point,
                                                      const math::AffineRecipe<double>& recipe) {
  const std::int32_t steps = __double2loint(__dadd_rn(quotient, 0x1.8p+52));
  return static_cast<std::uint32_t>(min(max(steps + zero_point, recipe.q_low), recipe.q_high));
}

// The same where every element has its own zero point: clamped as an integer.
__device__ __forceinline__ std::uint32_t integer_bits_of_column(
    float quotient, std::int32_t zero_point, const math::AffineRecipe<float>& recipe) {
  const std::int32_t steps =
      static_cast<std::int32_t>(__float_as_uint(__fadd_rn(quotient, 0x1.8p+23f)) - 0x4B400000u);
  return static_cast<std::uint32_t>(min(max(steps + zero_point, recipe.q_low), recipe.q_high));
}
__device__ __forceinline__ std::uint32_t integer_bits_of_column(
    double quotient, std::int32_t zero_point, const math::AffineRecipe<double>& recipe) {
  return integer_bits(quotient, zero_point, recipe);
}

// --- fp8 ---------------------------------------------------------------------------------------

__device__ __forceinline__ float as_float(float x) { return x; }
// Rounds to odd, so that the next rounding to fewer bits is as from the double.
__device__ __forceinline__ float as_float(double x) {
  const float cut = __double2float_rz(x);
  const std::uint32_t inexact = static_cast<double>(cut) != x ? 1u : 0u;
  return __uint_as_float(__float_as_uint(cut) | inexact);
}

template <class C>
__device__ __forceinline__ float float8_value(C quotient, C x,
                                              const math::AffineRecipe<C>& recipe) {
  const float bounded = fminf(fmaxf(as_float(quotient), static_cast<float>(recipe.q_min)),
                              static_cast<float>(recipe.q_max));
  if constexpr (sizeof(C) == 4)
    return __uint_as_float((__float_as_uint(bounded) & 0x7FFFFFFFu) |
                           (__float_as_uint(x) & 0x80000000u));
  else
    return copysignf(bounded, static_cast<float>(__double2hiint(x)));
}

// Two codes in the low 16 bits, the first one lowest.
__device__ __forceinline__ std::uint32_t float8_pair(float first, float second, bool e4m3) {
#if __CUDA_ARCH__ >= 890
  std::uint16_t pair;
  if (e4m3)
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %2, %1;" : "=h"(pair) : "f"(first), "f"(second));
  else
    asm("cvt.rn.satfinite.e5m2x2.f32 %0, %2, %1;" : "=h"(pair) : "f"(first), "f"(second));
  return pair;
#else
  // Fraction bits dropped, quantum of the subnormals and exponent bias, without branches.
  const int shift = e4m3 ? 20 : 21;
  const float smallest = e4m3 ? 0x1p-6f : 0x1p-14f;
  const float quantum = e4m3 ? 0x1p-9f : 0x1p-16f;
  const std::uint32_t rebias = (e4m3 ? 120u : 112u) << 23;
  const auto code = [&](float x) {
    const std::uint32_t bits = __float_as_uint(x) & 0x7FFFFFFFu;
    const std::uint32_t normal =
        (bits - rebias + ((1u << (shift - 1)) - 1) + (bits >> shift & 1u)) >> shift;
    const std::uint32_t tiny =
        __float_as_uint(__fadd_rn(__fmul_rn(__uint_as_float(bits), 1.0f / quantum), 0x1.8p+23f));
    const bool subnormal = __uint_as_float(bits) < smallest;
    return ((subnormal ? tiny : normal) & 0x7Fu) | (__float_as_uint(x) >> 24 & 0x80u);
  };
  return code(first) | code(second) << 8;
#endif
}

// --- Words -------------------------------------------------------------------------------------

// The low bytes of four words.
__device__ __forceinline__ std::uint32_t join(std::uint32_t a, std::uint32_t b, std::uint32_t c,
                                              std::uint32_t d) {
  return __byte_perm(__byte_perm(a, b, 0x0040), __byte_perm(c, d, 0x0040), 0x5410);
}

// Codes of one vector's elements, each in the low byte of its word, as they lie in memory.
template <Codes kCodes, int kCount>
__device__ __forceinline__ cuda::Word<kCount / (kCodes == Codes::Nibble ? 2 : 1)> pack(
    const std::uint32_t (&codes)[kCount], NibbleOrder order) {
  if constexpr (kCodes == Codes::Nibble) {
    const std::uint32_t pair = order == NibbleOrder::LowFirst ? 0x0040u : 0x0004u;
    std::uint32_t quads[(kCount + 3) / 4];
#pragma unroll
    for (int i = 0; i < kCount; i += 4) {
      std::uint32_t quad = __byte_perm(codes[i], codes[i + 1], pair);
      if constexpr (kCount > 2)
        quad = __byte_perm(quad, __byte_perm(codes[i + 2], codes[i + 3], pair), 0x5410);
      quad &= 0x0F0F0F0Fu;
      quads[i / 4] = quad | quad >> 4;  // bytes 0 and 2 hold two codes each
    }
    if constexpr (kCount == 8)
      return __byte_perm(quads[0], quads[1], 0x6420);
    else
      return static_cast<cuda::Word<kCount / 2>>(__byte_perm(quads[0], 0, 0x0020));
  } else if constexpr (kCount == 8) {
    return static_cast<std::uint64_t>(join(codes[4], codes[5], codes[6], codes[7])) << 32 |
           join(codes[0], codes[1], codes[2], codes[3]);
  } else if constexpr (kCount == 4) {
    return join(codes[0], codes[1], codes[2], codes[3]);
  } else if constexpr (kCount == 2) {
    return static_cast<std::uint16_t>(__byte_perm(codes[0], codes[1], 0x0040));
  } else {
    return static_cast<std::uint8_t>(codes[0]);
  }
}

// fp8: `codes` are the bits of bounded floats. Others: as pack() takes them.
template <Codes kCodes, int kCount>
__device__ __forceinline__ cuda::Word<kCount / (kCodes == Codes::Nibble ? 2 : 1)> finish(
    const std::uint32_t (&codes)[kCount], DType output, NibbleOrder order) {
  if constexpr (kCodes == Codes::Float8) {
    const bool e4m3 = output == DType::Float8E4M3FN;
    std::uint64_t word = 0;
#pragma unroll
    for (int i = 0; i < kCount; i += 2)
      word |= static_cast<std::uint64_t>(
                  float8_pair(__uint_as_float(codes[i]),
                              i + 1 < kCount ? __uint_as_float(codes[i + 1]) : 0.0f, e4m3))
              << 8 * i;
    return static_cast<cuda::Word<kCount>>(word);
  } else {
    return pack<kCodes>(codes, order);
  }
}

template <class In, Codes kCodes, bool kDivide>
__device__ __forceinline__ cuda::Word<kWordBytes<In, kCodes>> encode(
    const uint4& v, const math::SegmentParameters<Compute<In>>& segment,
    const math::AffineRecipe<Compute<In>>& recipe, NibbleOrder order) {
  using C = Compute<In>;
  constexpr int kCount = kPerVector<In>;
  std::uint32_t codes[kCount];
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    const C x = element_of<In>(v, i);
    const C q = quotient<kDivide>(x, segment.scale, segment.inverse);
    if constexpr (kCodes == Codes::Float8)
      codes[i] = __float_as_uint(float8_value(q, x, recipe));
    else
      codes[i] = integer_bits(q, segment.zero_point, recipe);
  }
  return finish<kCodes>(codes, recipe.output_dtype, order);
}

// Calls use(std::true_type) for DIVIDE, use(std::false_type) where a factor multiplies: one
// decision for a whole run of vectors.
template <class Use>
__device__ __forceinline__ void by_rule(Quotient rule, const Use& use) {
  if (rule == Quotient::Divide)
    use(std::true_type{});
  else
    use(std::false_type{});
}

}  // namespace planq::dynamic_range_quantize
