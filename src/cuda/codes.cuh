// Division of vectors of elements by a scale and packing of their codes into words: fewer
// instructions than ops/affine/scale.h, which defines the bits, and the same results.
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

#include "core/architectures.h"
#include "cuda/estimates.cuh"
#include "cuda/key_range.cuh"

namespace planq::cuda {

enum class Codes { Byte, Nibble, E4M3, E5M2 };

constexpr Codes codes_of(DType output) {
  return output == DType::Float8E4M3FN ? Codes::E4M3
         : output == DType::Float8E5M2 ? Codes::E5M2
         : is_four_bit(output)         ? Codes::Nibble
                                       : Codes::Byte;
}
constexpr bool is_float8(Codes codes) { return codes == Codes::E4M3 || codes == Codes::E5M2; }

// Codes of a byte.
template <Codes kCodes>
inline constexpr int kPerByte = kCodes == Codes::Nibble ? 2 : 1;
// Bytes of the codes of one vector.
template <class In, Codes kCodes>
inline constexpr int kWordBytes = kPerVector<In> / kPerByte<kCodes>;

template <class C>
inline constexpr C kSmallScale = sizeof(C) == 4 ? C(0x1p-70) : C(0x1p-700);
template <class C>
inline constexpr C kLargeScale = sizeof(C) == 4 ? C(0x1p+70) : C(0x1p+700);
// Bounds |x / s| and zero points, so that sums of integers in C are exact.
template <class C>
inline constexpr C kLargeQuotient = sizeof(C) == 4 ? C(0x1p+21) : C(0x1p+29);
inline constexpr std::int32_t kLargeZeroPoint = 1 << 21;

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

// Calls use(divides) for DIVIDE with a true constant, where a factor multiplies with a false one:
// one decision for all that a thread divides.
template <class Use>
__device__ __forceinline__ void by_rule(Quotient rule, const Use& use) {
  if (rule == Quotient::Divide)
    use(std::true_type{});
  else
    use(std::false_type{});
}

// fl(1 / scale) for kSmallScale <= scale <= kLargeScale: the steps of the compiler's own reciprocal
// without its range check.
__device__ __forceinline__ float inverse_of(float scale) {
  const float estimate = inverse_estimate(scale);
  return __fmaf_rn(estimate, __fmaf_rn(-scale, estimate, 1.0f), estimate);
}
__device__ __forceinline__ double inverse_of(double scale) { return 1.0 / scale; }

// What keeps a code inside [q_min, q_max]. None: no quotient is outside. Saturate: the packing
// instruction saturates, where these are the bounds of the output type. Clamp: comparisons.
enum class Bounds { None, Saturate, Clamp };

// rounded() of a float is kRoundedBits plus the integer that the float rounds to.
inline constexpr std::uint32_t kRoundedBits = 0x4B400000u;
__device__ __forceinline__ std::uint32_t rounded(float quotient) {
  return __float_as_uint(__fadd_rn(quotient, 0x1.8p+23f));
}
__device__ __forceinline__ std::int32_t rounded(double quotient) {
  return __double2loint(__dadd_rn(quotient, 0x1.8p+52));
}

// --- fp8 ---------------------------------------------------------------------------------------

__device__ __forceinline__ float as_float(float x) { return x; }
// Rounds to odd, so that the next rounding to fewer bits is as from the double.
__device__ __forceinline__ float as_float(double x) {
  const float cut = __double2float_rz(x);
  const std::uint32_t inexact = static_cast<double>(cut) != x ? 1u : 0u;
  return __uint_as_float(__float_as_uint(cut) | inexact);
}

// The code of a float inside the bounds or a NaN, without branches: what the conversion instruction
// of sm_89 gives.
template <Codes kCodes>
__device__ __forceinline__ std::uint32_t float8_code(float x) {
  constexpr bool e4m3 = kCodes == Codes::E4M3;
  // Fraction bits dropped, quantum of the subnormals and exponent bias.
  constexpr int shift = e4m3 ? 20 : 21;
  constexpr float smallest = e4m3 ? 0x1p-6f : 0x1p-14f;
  constexpr float quantum = e4m3 ? 0x1p-9f : 0x1p-16f;
  constexpr std::uint32_t rebias = (e4m3 ? 120u : 112u) << 23;
  const std::uint32_t bits = __float_as_uint(x) & 0x7FFFFFFFu;
  const std::uint32_t normal =
      (bits - rebias + ((1u << (shift - 1)) - 1) + (bits >> shift & 1u)) >> shift;
  const std::uint32_t tiny =
      __float_as_uint(__fadd_rn(__fmul_rn(__uint_as_float(bits), 1.0f / quantum), 0x1.8p+23f));
  const bool subnormal = __uint_as_float(bits) < smallest;
  const std::uint32_t code =
      ((subnormal ? tiny : normal) & 0x7Fu) | (__float_as_uint(x) >> 24 & 0x80u);
  return bits > 0x7F800000u ? 0x7Fu : code;
}

// Four codes, the first one lowest. Both conversions are in one statement because the compiler then
// lets the second one write the upper half of the word that the first one began.
template <Codes kCodes>
__device__ __forceinline__ std::uint32_t float8_quad(float a, float b, float c, float d) {
#if PLANQ_CONVERTS_FLOAT8
  std::uint32_t quad;
  if constexpr (kCodes == Codes::E4M3)
    asm("{\n"
        ".reg .b16 low, high;\n"
        "cvt.rn.satfinite.e4m3x2.f32 low, %2, %1;\n"
        "cvt.rn.satfinite.e4m3x2.f32 high, %4, %3;\n"
        "mov.b32 %0, {low, high};\n"
        "}"
        : "=r"(quad)
        : "f"(a), "f"(b), "f"(c), "f"(d));
  else
    asm("{\n"
        ".reg .b16 low, high;\n"
        "cvt.rn.satfinite.e5m2x2.f32 low, %2, %1;\n"
        "cvt.rn.satfinite.e5m2x2.f32 high, %4, %3;\n"
        "mov.b32 %0, {low, high};\n"
        "}"
        : "=r"(quad)
        : "f"(a), "f"(b), "f"(c), "f"(d));
  return quad;
#else
  return float8_code<kCodes>(a) | float8_code<kCodes>(b) << 8 | float8_code<kCodes>(c) << 16 |
         float8_code<kCodes>(d) << 24;
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
__device__ __forceinline__ Word<kCount / kPerByte<kCodes>> pack(
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
      return static_cast<Word<kCount / 2>>(__byte_perm(quads[0], 0, 0x0020));
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

// Two integers, saturated to signed bytes or nibbles, in the low bits; the bits of `above` are
// shifted up to make room for them.
template <Codes kCodes>
__device__ __forceinline__ std::uint32_t saturated_pair(std::uint32_t first, std::uint32_t second,
                                                        std::uint32_t above) {
  std::uint32_t word;
  if constexpr (kCodes == Codes::Nibble)
    asm("cvt.pack.sat.s4.s32.b32 %0, %2, %1, %3;"
        : "=r"(word)
        : "r"(first), "r"(second), "r"(above));
  else
    asm("cvt.pack.sat.s8.s32.b32 %0, %2, %1, %3;"
        : "=r"(word)
        : "r"(first), "r"(second), "r"(above));
  return word;
}

// Codes of one vector's elements from integers of any size, saturated to the output type. The
// instruction knows signed types only. `flip`: the type is unsigned, and its integers come less by
// half its range.
template <Codes kCodes, int kCount>
__device__ __forceinline__ Word<kCount / kPerByte<kCodes>> pack_saturated(
    const std::uint32_t (&codes)[kCount], bool flip, NibbleOrder order) {
  constexpr int kPerWord = kCodes == Codes::Nibble ? 8 : 4;
  std::uint32_t words[(kCount + kPerWord - 1) / kPerWord];
#pragma unroll
  for (int from = 0; from < kCount; from += kPerWord) {
    std::uint32_t word = 0;
#pragma unroll
    for (int i = (from + kPerWord < kCount ? from + kPerWord : kCount) - 2; i >= from; i -= 2)
      word = saturated_pair<kCodes>(codes[i], codes[i + 1], word);
    if (flip) word ^= kCodes == Codes::Nibble ? 0x88888888u : 0x80808080u;
    if (kCodes == Codes::Nibble && order != NibbleOrder::LowFirst)
      word = (word & 0x0F0F0F0Fu) << 4 | (word >> 4 & 0x0F0F0F0Fu);
    words[from / kPerWord] = word;
  }
  if constexpr (kCodes == Codes::Byte && kCount == 8)
    return static_cast<std::uint64_t>(words[1]) << 32 | words[0];
  else
    return static_cast<Word<kCount / kPerByte<kCodes>>>(words[0]);
}

// Codes of one vector's elements as they lie in memory. fp8: `codes` are the bits of floats inside
// the bounds. Others: as integer_code() gives them.
template <Codes kCodes, Bounds kBounds, int kCount>
__device__ __forceinline__ Word<kCount / kPerByte<kCodes>> finish(
    const std::uint32_t (&codes)[kCount], DType output, NibbleOrder order) {
  if constexpr (is_float8(kCodes)) {
    const auto value = [&](int i) { return i < kCount ? __uint_as_float(codes[i]) : 0.0f; };
    std::uint64_t word = float8_quad<kCodes>(value(0), value(1), value(2), value(3));
    if constexpr (kCount == 8)
      word |=
          static_cast<std::uint64_t>(float8_quad<kCodes>(value(4), value(5), value(6), value(7)))
          << 32;
    return static_cast<Word<kCount>>(word);
  } else if constexpr (kBounds == Bounds::Saturate) {
    return pack_saturated<kCodes>(codes, is_unsigned(output), order);
  } else {
    return pack<kCodes>(codes, order);
  }
}

}  // namespace planq::cuda
