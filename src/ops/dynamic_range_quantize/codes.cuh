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

enum class Codes { Byte, Nibble, E4M3, E5M2 };

constexpr Codes codes_of(DType output) {
  return output == DType::Float8E4M3FN ? Codes::E4M3
         : output == DType::Float8E5M2 ? Codes::E5M2
         : is_four_bit(output)         ? Codes::Nibble
                                       : Codes::Byte;
}
constexpr bool is_float8(Codes codes) { return codes == Codes::E4M3 || codes == Codes::E5M2; }

// Bytes of the codes of one vector.
template <class In, Codes kCodes>
inline constexpr int kWordBytes = kPerVector<In> / (kCodes == Codes::Nibble ? 2 : 1);

template <class C>
inline constexpr C kSmallScale = sizeof(C) == 4 ? C(0x1p-70) : C(0x1p-700);
template <class C>
inline constexpr C kLargeScale = sizeof(C) == 4 ? C(0x1p+70) : C(0x1p+700);
// Bounds |x/s|, so that the sums in integer_code() are exact.
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

// fl(1 / scale) for a scale inside the window: the steps of the compiler's own reciprocal without
// its range check.
__device__ __forceinline__ float inverse_of(float scale) {
  float estimate;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(estimate) : "f"(scale));
  return __fmaf_rn(estimate, __fmaf_rn(-scale, estimate, 1.0f), estimate);
}
__device__ __forceinline__ double inverse_of(double scale) { return 1.0 / scale; }

// What keeps a code inside [q_min, q_max]: nothing, where no quotient leaves it; the saturation of
// the packing instruction, where those are the bounds of the output type; a comparison.
enum class Bounds { None, Saturate, Clamp };

// A segment's numbers as the loop over its elements wants them.
template <class C>
struct Numbers {
  C scale, inverse;
  C low, high;  // bounds of the quotient, for Bounds::Clamp
  std::int32_t zero_point;
  std::int32_t signed_offset;  // from a rounded quotient to what pack_saturated() takes

  __device__ __forceinline__ Numbers(C scale, C inverse, std::int32_t zero_point,
                                     const math::AffineRecipe<C>& recipe)
      : scale(scale), inverse(inverse), zero_point(zero_point) {
    const C zero = static_cast<C>(zero_point);
    low = recipe.q_min - zero;
    high = recipe.q_max - zero;
    signed_offset = zero_point - half_range(recipe);
  }
  __device__ __forceinline__ Numbers(const math::SegmentParameters<C>& segment,
                                     const math::AffineRecipe<C>& recipe)
      : Numbers(segment.scale, segment.inverse, segment.zero_point, recipe) {}

  // How far the codes of an unsigned type lie above those of the signed one.
  __device__ __forceinline__ static std::int32_t half_range(const math::AffineRecipe<C>& recipe) {
    return recipe.q_low == 0 ? (recipe.q_high + 1) / 2 : 0;
  }
};

// The bits of this float, as an integer, are the integer it rounds to and kRoundedBits.
inline constexpr std::uint32_t kRoundedBits = 0x4B400000u;
__device__ __forceinline__ std::uint32_t rounded(float quotient) {
  return __float_as_uint(__fadd_rn(quotient, 0x1.8p+23f));
}
__device__ __forceinline__ std::int32_t rounded(double quotient) {
  return __double2loint(__dadd_rn(quotient, 0x1.8p+52));
}

// The code of clamp(rne(quotient) + zero_point) in the low byte, other bits being arbitrary;
// Bounds::Saturate: the sum that pack_saturated() takes. Clamping to integers commutes with
// rounding, and the sums after that are exact.
template <bool kAsymmetric, Bounds kBounds>
__device__ __forceinline__ std::uint32_t integer_code(float quotient, const Numbers<float>& n,
                                                      const math::AffineRecipe<float>&) {
  if constexpr (kBounds == Bounds::Clamp) quotient = fminf(fmaxf(quotient, n.low), n.high);
  const std::uint32_t bits = rounded(quotient);
  if constexpr (kBounds == Bounds::Saturate)
    return bits + (static_cast<std::uint32_t>(n.signed_offset) - kRoundedBits);
  return kAsymmetric ? bits + static_cast<std::uint32_t>(n.zero_point) : bits;
}
template <bool kAsymmetric, Bounds kBounds>
__device__ __forceinline__ std::uint32_t integer_code(double quotient, const Numbers<double>& n,
                                                      const math::AffineRecipe<double>& recipe) {
  std::int32_t code = rounded(quotient);
  if constexpr (kBounds == Bounds::Saturate)
    return static_cast<std::uint32_t>(code + n.signed_offset);
  if constexpr (kAsymmetric) code += n.zero_point;
  if constexpr (kBounds == Bounds::Clamp) code = min(max(code, recipe.q_low), recipe.q_high);
  return static_cast<std::uint32_t>(code);
}

// --- fp8 ---------------------------------------------------------------------------------------

__device__ __forceinline__ float as_float(float x) { return x; }
// Rounds to odd, so that the next rounding to fewer bits is as from the double.
__device__ __forceinline__ float as_float(double x) {
  const float cut = __double2float_rz(x);
  const std::uint32_t inexact = static_cast<double>(cut) != x ? 1u : 0u;
  return __uint_as_float(__float_as_uint(cut) | inexact);
}

template <bool kDivide, Bounds kBounds, class C>
__device__ __forceinline__ float float8_value(C quotient, C x,
                                              const math::AffineRecipe<C>& recipe) {
  float value = as_float(quotient);
  if constexpr (kBounds == Bounds::Clamp)
    value = fminf(fmaxf(value, static_cast<float>(recipe.q_min)), static_cast<float>(recipe.q_max));
  if constexpr (!kDivide) return value;
  // The corrections of the quotient lose the sign of a zero.
  const std::uint32_t sign =
      (sizeof(C) == 4 ? __float_as_uint(static_cast<float>(x))
                      : static_cast<std::uint32_t>(__double2hiint(static_cast<double>(x)))) &
      0x80000000u;
  return __uint_as_float((__float_as_uint(value) & 0x7FFFFFFFu) | sign);
}

// Two codes in the low 16 bits, the first one lowest.
template <Codes kCodes>
__device__ __forceinline__ std::uint32_t float8_pair(float first, float second) {
  constexpr bool e4m3 = kCodes == Codes::E4M3;
#if __CUDA_ARCH__ >= 890
  std::uint16_t pair;
  if constexpr (e4m3)
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

// Two integers, saturated to signed bytes or nibbles, below the bits of `above`.
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
// instruction knows signed types, so the integers of an unsigned one come `flip`ped: less by half
// its range.
template <Codes kCodes, int kCount>
__device__ __forceinline__ cuda::Word<kCount / (kCodes == Codes::Nibble ? 2 : 1)> pack_saturated(
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
    return static_cast<cuda::Word<kCount / (kCodes == Codes::Nibble ? 2 : 1)>>(words[0]);
}

// Codes of one vector's elements as they lie in memory. fp8: `codes` are the bits of floats inside
// the bounds. Others: as integer_code() gives them.
template <Codes kCodes, Bounds kBounds, int kCount>
__device__ __forceinline__ cuda::Word<kCount / (kCodes == Codes::Nibble ? 2 : 1)> finish(
    const std::uint32_t (&codes)[kCount], DType output, NibbleOrder order) {
  if constexpr (is_float8(kCodes)) {
    std::uint64_t word = 0;
#pragma unroll
    for (int i = 0; i < kCount; i += 2)
      word |= static_cast<std::uint64_t>(float8_pair<kCodes>(
                  __uint_as_float(codes[i]), i + 1 < kCount ? __uint_as_float(codes[i + 1]) : 0.0f))
              << 8 * i;
    return static_cast<cuda::Word<kCount>>(word);
  } else if constexpr (kBounds == Bounds::Saturate) {
    return pack_saturated<kCodes>(codes, is_unsigned(output), order);
  } else {
    return pack<kCodes>(codes, order);
  }
}

// The bits of one element's code, as finish() takes them.
template <Codes kCodes, bool kAsymmetric, bool kDivide, Bounds kBounds, class C>
__device__ __forceinline__ std::uint32_t code_bits(C x, const Numbers<C>& numbers,
                                                   const math::AffineRecipe<C>& recipe) {
  const C q = quotient<kDivide>(x, numbers.scale, numbers.inverse);
  if constexpr (is_float8(kCodes))
    return __float_as_uint(float8_value<kDivide, kBounds>(q, x, recipe));
  else
    return integer_code<kAsymmetric, kBounds>(q, numbers, recipe);
}

template <class In, Codes kCodes, bool kAsymmetric, bool kDivide, Bounds kBounds>
__device__ __forceinline__ cuda::Word<kWordBytes<In, kCodes>> encode(
    const uint4& v, const Numbers<Compute<In>>& numbers,
    const math::AffineRecipe<Compute<In>>& recipe, NibbleOrder order) {
  std::uint32_t codes[kPerVector<In>];
#pragma unroll
  for (int i = 0; i < kPerVector<In>; ++i)
    codes[i] =
        code_bits<kCodes, kAsymmetric, kDivide, kBounds>(element_of<In>(v, i), numbers, recipe);
  return finish<kCodes, kBounds>(codes, recipe.output_dtype, order);
}

// The code of one element of a whole byte.
template <Codes kCodes, bool kAsymmetric, bool kDivide, Bounds kBounds, class C>
__device__ __forceinline__ std::uint8_t encode_single(C x, const Numbers<C>& numbers,
                                                      const math::AffineRecipe<C>& recipe,
                                                      NibbleOrder order) {
  const std::uint32_t bits = code_bits<kCodes, kAsymmetric, kDivide, kBounds>(x, numbers, recipe);
  const std::uint32_t twice[2] = {bits, bits};
  return static_cast<std::uint8_t>(finish<kCodes, kBounds>(twice, recipe.output_dtype, order));
}

template <Bounds kBounds>
using BoundsConstant = std::integral_constant<Bounds, kBounds>;

// Calls use(divides) for DIVIDE with a true constant, where a factor multiplies with a false one:
// one decision for a whole run of vectors.
template <class Use>
__device__ __forceinline__ void by_rule(Quotient rule, const Use& use) {
  if (rule == Quotient::Divide)
    use(std::true_type{});
  else
    use(std::false_type{});
}

// Usual: DIVIDE, scales stored as they are computed, codes that need no comparison with bounds. It
// has kernels of its own in the hot places, so that a small launch, which waits for every
// instruction that it fetches, fetches few.
enum class Recipe { Usual, Any };

// What is enough where a segment's codes need no comparison with its bounds.
template <Codes kCodes, bool kAsymmetric>
inline constexpr Bounds kFreeBounds =
    kAsymmetric && !is_float8(kCodes) ? Bounds::Saturate : Bounds::None;

// The same, use(divides, bounds). Of an args struct it takes the recipe and `clamps`: whether codes
// need Bounds::Clamp.
template <Recipe kRecipe, Codes kCodes, bool kAsymmetric, class Args, class Use>
__device__ __forceinline__ void by_recipe(const Args& args, const Use& use) {
  using Free = BoundsConstant<kFreeBounds<kCodes, kAsymmetric>>;
  if constexpr (kRecipe == Recipe::Usual) {
    use(std::true_type{}, Free{});
  } else {
    by_rule(args.recipe.quotient, [&](auto divides) {
      if (args.clamps)
        use(divides, BoundsConstant<Bounds::Clamp>{});
      else
        use(divides, Free{});
    });
  }
}

}  // namespace planq::dynamic_range_quantize
