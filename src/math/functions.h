// Elementary functions of float32 whose every bit is specified. docs/numerics/functions.md has the
// sequences, the bounds of their errors and a digest of each over all inputs.
//
// Every operation is one IEEE operation, or one of integers on bits. There are no tables and no
// branches, so that loops of them vectorise. A NaN among the results may have any bits: what is
// stored goes through narrow(), which makes it the canonical one.
#pragma once

#include "math/ieee.h"

namespace planq::math {

// (the enumerator, the name that documents use, the function)
// clang-format off
#define PLANQ_FUNCTIONS(_)                                  \
  _(Exp2, "exp2", exp2)                                     \
  _(Exp, "exp", exp)                                        \
  _(ExpNonpositive, "exp_nonpositive", exp_nonpositive)     \
  _(Exp2Fast5, "exp2_fast5", exp2_fast<5>)                  \
  _(Exp2Fast4, "exp2_fast4", exp2_fast<4>)                  \
  _(Exp2Fast3, "exp2_fast3", exp2_fast<3>)                  \
  _(Sigmoid, "sigmoid", sigmoid)                            \
  _(Silu, "silu", silu)                                     \
  _(GeluTanh, "gelu_tanh", gelu_tanh)                       \
  _(Tanh, "tanh", tanh)                                     \
  _(Erf, "erf", erf)                                        \
  _(GeluErf, "gelu_erf", gelu_erf)                          \
  _(Log, "log", log)                                        \
  _(Log2, "log2", log2)                                     \
  _(Log1p, "log1p", log1p)                                  \
  _(Rsqrt, "rsqrt", rsqrt)                                  \
  _(RsqrtDiv, "rsqrt_div", rsqrt_div)                       \
  _(Sin, "sin", sin)                                        \
  _(Cos, "cos", cos)
// clang-format on

enum class Function : std::int32_t {
#define PLANQ_FUNCTION_ENUMERATOR(enumerator, name, function) enumerator,
  PLANQ_FUNCTIONS(PLANQ_FUNCTION_ENUMERATOR)
#undef PLANQ_FUNCTION_ENUMERATOR
};

namespace detail {

inline constexpr float kLog2E = 0x1.715476p+0f;
// ln 2 in two parts. Small multiples of the high one are exact.
inline constexpr float kLn2High = 0x1.62e43p-1f, kLn2Low = -0x1.05c61p-29f;
// Added to a number and taken away again, it rounds to an integer, which the low bits of the sum
// hold.
inline constexpr float kRounding = 0x1.8p23f;

PLANQ_HD std::uint32_t bits_of(float x) { return bit_cast<std::uint32_t>(x); }
PLANQ_HD float float_of(std::uint32_t bits) { return bit_cast<float>(bits); }
PLANQ_HD float infinity() { return float_of(Ieee<float>::kInfinity); }
PLANQ_HD float magnitude(float x) { return float_of(magnitude_bits(x)); }
// `yes ? x : y`. On the host it is written with a mask, as compilers make branches of arithmetic
// that only one side needs, and do not vectorise these.
PLANQ_HD float select(bool yes, float x, float y) {
#if defined(__CUDA_ARCH__)
  return yes ? x : y;
#else
  const std::uint32_t mask = -static_cast<std::uint32_t>(yes);
  return float_of((bits_of(x) & mask) | (bits_of(y) & ~mask));
#endif
}
// y with the sign of x.
PLANQ_HD float with_sign(float y, float x) {
  return float_of(magnitude_bits(y) | (bits_of(x) & Ieee<float>::kSign));
}

// The larger, or the smaller, of x and a bound. A NaN stays one.
PLANQ_HD float at_least(float x, float bound) {
#if defined(__CUDA_ARCH__)
  float y;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(y) : "f"(x), "f"(bound));
  return y;
#else
  return select(x < bound, bound, x);
#endif
}
PLANQ_HD float at_most(float x, float bound) {
#if defined(__CUDA_ARCH__)
  float y;
  asm("min.NaN.f32 %0, %1, %2;" : "=f"(y) : "f"(x), "f"(bound));
  return y;
#else
  return select(x > bound, bound, x);
#endif
}

// 1 / d, correctly rounded, for d from 1 to 2^30: an approximation and a Newton step suffice there.
PLANQ_HD float reciprocal(float d) {
#if defined(__CUDA_ARCH__)
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(d));
  return fused(y, fused(-d, y, 1.0f), y);
#else
  return 1.0f / d;
#endif
}
PLANQ_HD float quotient_of(float x, float y) {
#if defined(__CUDA_ARCH__)
  return __fdiv_rn(x, y);
#else
  return x / y;
#endif
}

// Horner's scheme; coefficients ascend.
PLANQ_HD float polynomial(float, float last) { return last; }
template <class... Rest>
PLANQ_HD float polynomial(float x, float first, Rest... rest) {
  return fused(polynomial(x, rest...), x, first);
}

// A number rounded to an integer n. `shifted` has the bits of n + kRounding + bias, of which the
// low ones are n + bias.
struct Whole {
  float n;
  std::uint32_t shifted;
};
PLANQ_HD Whole whole_of(float shifted, float bias) {
  return {shifted - (kRounding + bias), bits_of(shifted)};
}
// 2^(n + bias - 127).
PLANQ_HD float power_of_two(Whole whole) { return float_of(whole.shifted << 23); }

// x + low is the number that is meant; low is what the rounding of x lost.
struct Pair {
  float x, low;
};
// x y + z.
PLANQ_HD Pair fused_pair(float x, float y, float z) {
  const float high = fused(x, y, z);
  return {high, fused(x, y, z - high)};
}
// x y.
PLANQ_HD Pair product_pair(float x, float y) {
  const float high = x * y;
  return {high, fused(x, y, -high)};
}

// --- Exponentials --------------------------------------------------------------------------------

// The bias of exponents that may lie anywhere, and of those that are not above 0.
inline constexpr float kAnyBias = 254, kFallingBias = 227;

// y 2^n for kAnyBias. Of two factors the first is exact, and the second may round to a subnormal.
PLANQ_HD float scaled(float y, Whole whole) {
  const std::uint32_t half = (whole.shifted << 22) & Ieee<float>::kInfinity;
  const std::uint32_t rest = (whole.shifted << 23) - half;
  return y * float_of(half) * float_of(rest);
}
// y 2^n for kFallingBias.
PLANQ_HD float scaled_down(float y, Whole whole) { return y * power_of_two(whole) * 0x1p-100f; }

// e^f, and the n of x = n ln 2 + f.
struct Exponential {
  float value;
  Whole whole;
};
PLANQ_HD Exponential exponential(float x, float bias) {
  const Whole whole = whole_of(fused(x, kLog2E, kRounding + bias), bias);
  const float f = fused(whole.n, -kLn2High, x);
  const float q = polynomial(f, 0.5f, 0x1.555554p-3f, 0x1.5554eap-5f, 0x1.11131ap-7f,
                             0x1.6d4aaep-10f, 0x1.9de246p-13f);
  const Pair p = fused_pair(q, f, 1.0f), s = fused_pair(f, p.x, 1.0f);
  const float low = fused(whole.n * -kLn2Low, s.x, fused(f, p.low, s.low));
  return {s.x + low, whole};
}

// A polynomial of several numbers, step by step, which a processor can do side by side.
template <int kCount>
PLANQ_HD void polynomials(const float (&)[kCount], float (&results)[kCount], float last) {
  for (int i = 0; i < kCount; ++i) results[i] = last;
}
template <int kCount, class... Rest>
PLANQ_HD void polynomials(const float (&x)[kCount], float (&results)[kCount], float first,
                          Rest... rest) {
  polynomials(x, results, rest...);
  for (int i = 0; i < kCount; ++i) results[i] = fused(results[i], x[i], first);
}

// 2^f for |f| <= 1/2.
template <int kDegree, int kCount>
PLANQ_HD void exp2_polynomials(const float (&f)[kCount], float (&p)[kCount]) {
  static_assert(kDegree >= 3 && kDegree <= 5);
  if constexpr (kDegree == 5)
    polynomials(f, p, 1.0f, 0x1.62e428p-1f, 0x1.ebf9bcp-3f, 0x1.c6b75ep-5f, 0x1.3cea66p-7f,
                0x1.5bb684p-10f);
  else if constexpr (kDegree == 4)
    polynomials(f, p, 1.0f, 0x1.62e034p-1f, 0x1.ebfdap-3f, 0x1.ca7214p-5f, 0x1.3c9p-7f);
  else
    polynomials(f, p, 1.0f, 0x1.62f5fap-1f, 0x1.f00c4cp-3f, 0x1.c2a1fep-5f);
}

// (2^f - 1) / f.
PLANQ_HD float exp2_slope(float f) {
  return polynomial(f, kLn2High, 0x1.ebfbdcp-3f, 0x1.c6af7cp-5f, 0x1.3b2dep-7f, 0x1.5f082ep-10f,
                    0x1.416b5ep-13f);
}

// --- Quotients with 1 + e ------------------------------------------------------------------------

// A power (1 + g) scale 2^-100, not above 1.
struct Power {
  float g, scale;
};

// e^x for x <= 0.
PLANQ_HD Power falling_power(float x) {
  const Whole whole = whole_of(fused(x, kLog2E, kRounding + kFallingBias), kFallingBias);
  const float f = fused(whole.n, -kLn2Low, fused(whole.n, -kLn2High, x));
  const float q = polynomial(f, 0x1.fffffap-2f, 0x1.555492p-3f, 0x1.555a0cp-5f, 0x1.1239d6p-7f,
                             0x1.696f2cp-10f);
  return {fused(f * f, q, f), power_of_two(whole)};
}

// c / (1 + e), or c e / (1 + e) where x < 0, with the power e. What the products and sums lose is
// computed too and added at the end. Numerators are kept 2^100 times too large, so that none of
// this is lost where e is small.
PLANQ_HD float gated(float c, bool negative, Power e) {
  const float power = fused(e.scale, e.g, e.scale);
  const Pair d = fused_pair(power, 0x1p-100f, 1.0f);
  const float inverse = reciprocal(d.x);
  const float scale = c * select(negative, e.scale, 0x1p100f);
  const Pair numerator = fused_pair(scale, select(negative, e.g, 0.0f), scale);
  const float y = numerator.x * inverse;
  const float rest = fused(-y, d.low, fused(-y, d.x, numerator.x)) + numerator.low;
  return fused(rest, inverse, y) * 0x1p-100f;
}

// --- Logarithms ----------------------------------------------------------------------------------

// x = 2^k (1 + f) with f from -1/3 to 1/3: k as bits of a float's exponent, and f.
struct Mantissa {
  std::uint32_t exponent;
  float f;

  // k 2^23.
  PLANQ_HD float shifted_k() const {
    return static_cast<float>(static_cast<std::int32_t>(exponent));
  }
};
PLANQ_HD Mantissa mantissa_of(float x) {
  constexpr std::uint32_t kTwoThirds = 0x3F2AAAABu, kExponents = 0xFF800000u;
  const std::uint32_t exponent = (bits_of(x) - kTwoThirds) & kExponents;
  return {exponent, float_of(bits_of(x) - exponent) - 1.0f};
}

// The same of any x > 0, with k in float32.
struct Decomposition {
  float k, f;
};
PLANQ_HD Decomposition decomposition_of(float x) {
  const bool tiny = x < 0x1p-126f;
  const Mantissa mantissa = mantissa_of(select(tiny, x * 0x1p23f, x));
  return {fused(mantissa.shifted_k(), 0x1p-23f, select(tiny, -23.0f, 0.0f)), mantissa.f};
}

// f - f^2 / 2.
PLANQ_HD Pair first_terms(float f) { return fused_pair(f, -0.5f * f, f); }

// ln(1 + f) + k ln 2, where the sum of the first terms of the former is given.
PLANQ_HD float natural_logarithm(float k, float f, Pair terms) {
  constexpr float kHigh = 0x1.62e4p-1f, kLow = 0x1.7f7d1cp-20f;  // ln 2; k kHigh is exact
  const float p =
      polynomial(f, 0x1.555558p-2f, -0x1.ffff26p-3f, 0x1.9996dep-3f, -0x1.5594a6p-3f,
                 0x1.2503c6p-3f, -0x1.f408p-4f, 0x1.b73b1ap-4f, -0x1.05f958p-3f, 0x1.f0b668p-4f);
  const float y = fused(k, kHigh, terms.x);
  const float lost = terms.x - fused(k, -kHigh, y);
  return y + fused(f * f, f * p, fused(k, kLow, lost) + terms.low);
}

// The logarithm y where that is finite; -inf at its pole, a NaN below.
PLANQ_HD float finished_logarithm(float y, float x, float pole) {
  const float finite = select(x < infinity(), y, x);
  const float outside = select(x == pole, -infinity(), canonical_nan<float>());
  return select(x > pole, finite, outside);
}

// --- Sine and cosine -----------------------------------------------------------------------------

// x = quadrant pi / 2 + r + low.
struct Angle {
  float r, low;
  std::uint32_t quadrant;

  PLANQ_HD Angle next() const { return {r, low, quadrant + 1}; }
};

// For |x| <= 2^22.
PLANQ_HD Angle angle_of(float x) {
  constexpr float kInverse = 0x1.45f306p-1f;  // 2 / pi
  // -pi / 2 in three parts.
  constexpr float kHigh = -0x1.921fb6p+0f, kMiddle = 0x1.777a5cp-25f, kLow = 0x1.ee59dap-50f;
  const Whole whole = whole_of(fused(x, kInverse, kRounding), 0);
  const float a = fused(whole.n, kHigh, x);
  const Pair b = product_pair(whole.n, kMiddle);
  const float r = a + b.x;
  const float lost = (a - r) + b.x;
  return {r, fused(whole.n, kLow, lost + b.low), whole.shifted};
}
// For phase 2^-32 turns. What is left of the phase in a quadrant is exact, in two floats.
PLANQ_HD Angle angle_of_phase(std::uint32_t phase) {
  constexpr float kUnit = 0x1.921fb6p-30f, kUnitLow = -0x1.777a5cp-55f;  // 2 pi 2^-32
  const std::uint32_t quadrant = (phase + (1u << 29)) >> 30;
  const auto inside = static_cast<std::int32_t>(phase - (quadrant << 30));
  const float high = static_cast<float>(inside);
  const float rest = static_cast<float>(inside - static_cast<std::int32_t>(high));
  const Pair r = product_pair(high, kUnit);
  return {r.x, fused(rest, kUnit, fused(high, kUnitLow, r.low)), quadrant};
}

PLANQ_HD float sine_of(Angle angle) {
  const float r = angle.r, z = r * r;
  const Pair w = fused_pair(r, -0.5f * r, 1.0f);  // 1 - r^2 / 2
  const float s = polynomial(z, -0x1.555556p-3f, 0x1.11114ap-7f, -0x1.a02976p-13f, 0x1.6faf38p-19f);
  const float c = polynomial(z, 0x1.555532p-5f, -0x1.6c000ap-10f, 0x1.97061ep-16f);
  const float sine = r + fused(r, z * s, angle.low * w.x);
  const float cosine = w.x + fused(z * z, c, fused(-r, angle.low, w.low));
  const float y = select((angle.quadrant & 1) != 0, cosine, sine);
  return float_of(bits_of(y) ^ (angle.quadrant & 2) << 30);
}

// Beyond 2^22 there is no angle.
PLANQ_HD float finished_sine(float y, float x) {
  return select(magnitude(x) <= 0x1p22f, y, canonical_nan<float>());
}

}  // namespace detail

// 2^x.
PLANQ_HD float exp2(float x) {
  using namespace detail;
  const float bounded = at_most(at_least(x, -151.0f), 128.0f);
  const Whole whole = whole_of(bounded + (kRounding + kAnyBias), kAnyBias);
  const float f = bounded - whole.n;
  const float q = polynomial(f, 0x1.ebfbep-3f, 0x1.c6b06ap-5f, 0x1.3b2a5ap-7f, 0x1.5dab6p-10f,
                             0x1.4411bcp-13f, 0x1.d8dfc4p-17f);
  const Pair p = fused_pair(q, f, kLn2High), s = fused_pair(f, p.x, 1.0f);
  return scaled(s.x + fused(f, p.low, s.low), whole);
}

// e^x.
PLANQ_HD float exp(float x) {
  using namespace detail;
  const Exponential e = exponential(at_most(at_least(x, -104.0f), 89.0f), kAnyBias);
  return scaled(e.value, e.whole);
}

// The bits of exp(x) for x <= 0, in fewer operations.
PLANQ_HD float exp_nonpositive(float x) {
  using namespace detail;
  const Exponential e = exponential(at_least(x, -104.0f), kFallingBias);
  return scaled_down(e.value, e.whole);
}

// 2^x for x <= 0, in few operations: 5 and the degree of a polynomial, whose relative error is
// 2^-22.49 (5), 2^-18.05 (4) or 2^-13.27 (3). Exact where x is an integer. Below 2^-126 the result
// falls linearly to +0, which it is from -127 on, and for a NaN.
// Of several numbers: step by step, which a processor can do side by side.
template <int kDegree, int kCount>
PLANQ_HD void exp2_fast(float (&x)[kCount]) {
  using namespace detail;
  float f[kCount], p[kCount];
  std::uint32_t shifted[kCount];
  for (int i = 0; i < kCount; ++i) x[i] = select(x[i] > -127.0f, x[i], -127.0f);
  for (int i = 0; i < kCount; ++i) {
    const Whole whole = whole_of(x[i] + kRounding, 0);
    f[i] = x[i] - whole.n;
    shifted[i] = whole.shifted;
  }
  exp2_polynomials<kDegree>(f, p);
  for (int i = 0; i < kCount; ++i) x[i] = float_of(bits_of(p[i]) + (shifted[i] << 23));
}
template <int kDegree>
PLANQ_HD float exp2_fast(float x) {
  float one[1] = {x};
  exp2_fast<kDegree>(one);
  return one[0];
}

// 1 / (1 + e^-x).
PLANQ_HD float sigmoid(float x) {
  using namespace detail;
  return gated(1.0f, x < 0, falling_power(-at_most(magnitude(x), 104.0f)));
}

// x / (1 + e^-x).
PLANQ_HD float silu(float x) {
  using namespace detail;
  const float c = at_least(x, -110.0f);
  const float y = with_sign(gated(c, x < 0, falling_power(-magnitude(c))), x);
  return select(x > 20.0f, x, y);
}

// x / (1 + e^-2u), u = sqrt(2 / pi) (x + 0.044715 x^3).
PLANQ_HD float gelu_tanh(float x) {
  using namespace detail;
  // 2 sqrt(2 / pi) log2(e), and 0.044715 times that.
  constexpr float kLinear = 0x1.26aecp+1f, kLinearLow = 0x1.0de73ap-22f;
  constexpr float kCubic = 0x1.a5a7dp-4f, kCubicLow = -0x1.151aaep-29f;
  const float c = at_least(x, -11.0f), v = -magnitude(c);
  const Pair z = product_pair(c, c), factor = fused_pair(z.x, kCubic, kLinear);
  const float factor_low = fused(z.low, kCubic, factor.low) + fused(z.x, kCubicLow, kLinearLow);
  const Whole whole = whole_of(fused(v, factor.x, kRounding + kFallingBias), kFallingBias);
  const float f = fused(v, factor_low, fused(v, factor.x, -whole.n));
  const Power e{f * exp2_slope(f), power_of_two(whole)};
  const float y = with_sign(gated(c, x < 0, e), x);
  return select(x > 10.0f, x, y);
}

PLANQ_HD float tanh(float x) {
  using namespace detail;
  constexpr float kBias = 128;
  const float z = x * x;
  const float p = polynomial(z, -0x1.55555p-2f, 0x1.110f8p-3f, -0x1.b9d1ecp-5f, 0x1.632334p-6f,
                             -0x1.0f7cf2p-7f, 0x1.54c414p-9f, -0x1.e380ep-12f);
  const float small = fused(x, z * p, x);
  // Else 1 - 2 / (1 + e^2a). 2^n (1 / 2 + g) is half of e^2a, and scale is 2^(n + 1).
  const float a = at_most(magnitude(x), 10.0f);
  const Whole whole = whole_of(fused(a, 2 * kLog2E, kRounding + kBias), kBias);
  const float f = fused(whole.n, -kLn2Low / 2, fused(whole.n, -kLn2High / 2, a));
  const float q =
      polynomial(f, 0x1.fffffap-1f, 0x1.555492p-1f, 0x1.555a0cp-2f, 0x1.1239d6p-3f, 0x1.696f2cp-5f);
  const float g = fused(f * f, q, f), scale = power_of_two(whole);
  const float big = fused(-2.0f, reciprocal(fused(scale, g, fused(scale, 0.5f, 1.0f))), 1.0f);
  return with_sign(select(magnitude(x) >= 0.9f, big, small), x);
}

PLANQ_HD float erf(float x) {
  using namespace detail;
  constexpr float kBias = 127;
  const float a = at_most(magnitude(x), 4.0f), z = x * x;
  const float p = polynomial(z, 0x1.06eba8p-3f, -0x1.81274p-2f, 0x1.ce2d4ap-4f, -0x1.b7fdaap-6f,
                             0x1.5423dcp-8f, -0x1.a4afd2p-11f, 0x1.4b190ep-14f);
  const float small = fused(x, p, x);
  // Else 1 - 2^(a h), a polynomial of the logarithm.
  const float h = polynomial(a, -0x1.a0c7a2p+0f, -0x1.d5ac96p-1f, -0x1.3685ep-3f, 0x1.0d4c88p-5f,
                             -0x1.2cf57ep-8f, 0x1.3df506p-12f);
  const Whole whole = whole_of(fused(a, h, kRounding + kBias), kBias);
  const float f = fused(a, h, -whole.n);
  const float power = fused(exp2_slope(f), f, 1.0f);
  const float big = with_sign(fused(-power, power_of_two(whole), 1.0f), x);
  return select(magnitude(x) >= 1.0f, big, small);
}

// x (1 + erf(x / sqrt(2))) / 2. Of the normal distribution below -a it takes e^(-a^2 / 2) P / Q.
PLANQ_HD float gelu_erf(float x) {
  using namespace detail;
  constexpr float kHigh = -0x1.715476p-1f, kLow = -0x1.4ae0cp-27f;  // -log2(e) / 2
  const float c = at_most(at_least(x, -14.5f), 14.5f), a = magnitude(c);
  const Pair square = product_pair(c, c);
  const float z = square.x;
  const Whole whole = whole_of(fused(z, kHigh, kRounding + kFallingBias), kFallingBias);
  const float rest = fused(z, kLow, fused(z, kHigh, -whole.n));
  const float f = fused(square.low, kHigh, rest);
  const float scale = c * power_of_two(whole);
  const float m = fused(scale, f * exp2_slope(f), scale);
  const float p = fused(a, polynomial(z, 0x1.8815ccp-1f, 0x1.221006p-4f),
                        polynomial(z, 0.875f, 0x1.477378p-2f, 0x1.d553f8p-8f));
  const float q = fused(a, polynomial(z, 0x1.76c4dp+1f, 0x1.a37388p-1f, 0x1.261aa4p-6f),
                        polynomial(z, 1.75f, 0x1.0ce25p+1f, 0x1.6b904ep-3f));
  const float inverse = reciprocal(q), r = p * inverse, r_low = fused(-r, q, p) * inverse;
  const float y = fused(m, r, m * r_low) * 0x1p-100f;
  return select(x < 0, y, with_sign(x - y, x));
}

// ln x.
PLANQ_HD float log(float x) {
  using namespace detail;
  const Decomposition d = decomposition_of(x);
  return finished_logarithm(natural_logarithm(d.k, d.f, first_terms(d.f)), x, 0.0f);
}

PLANQ_HD float log2(float x) {
  using namespace detail;
  constexpr float kLog2ELow = 0x1.4ae0cp-26f;
  const auto [k, f] = decomposition_of(x);
  const float p =
      polynomial(f, 0x1.ec709ep-2f, -0x1.7153d2p-2f, 0x1.2775f2p-2f, -0x1.ecceb4p-3f,
                 0x1.a67f08p-3f, -0x1.688c3cp-3f, 0x1.3f6bb4p-3f, -0x1.7a9392p-3f, 0x1.5c340ep-3f);
  const Pair terms = first_terms(f), u = product_pair(terms.x, kLog2E);
  const float low = fused(terms.low, kLog2E, fused(terms.x, kLog2ELow, u.low));
  const float y = k + u.x;
  const float lost = (u.x - (y - k)) + low;
  return finished_logarithm(y + fused(f * f, f * p, lost), x, 0.0f);
}

// ln(1 + x).
PLANQ_HD float log1p(float x) {
  using namespace detail;
  constexpr std::int32_t kMostExponent = 100 << 23;
  const float v = 1.0f + x;
  const float lost = select(x > 1.0f, 1.0f - (v - x), x - (v - 1.0f));
  const Mantissa mantissa = mantissa_of(v);
  const auto exponent = static_cast<std::int32_t>(mantissa.exponent);
  const std::int32_t least = exponent < kMostExponent ? exponent : kMostExponent;
  const float c = lost * float_of(bits_of(1.0f) - static_cast<std::uint32_t>(least));
  const float f = mantissa.f + c, f_low = (mantissa.f - f) + c;
  Pair terms = first_terms(f);
  terms.low = fused(f_low, fused(-f, 1.0f - f, 1.0f), terms.low);
  const float y = natural_logarithm(mantissa.shifted_k() * 0x1p-23f, f, terms);
  return finished_logarithm(select(x == 0, x, y), x, -1.0f);
}

// 1 / sqrt(x), correctly rounded.
PLANQ_HD float rsqrt(float x) {
#if defined(__CUDA_ARCH__)
  return __frsqrt_rn(x);
#else
  const bool low = x < 0x1p-64f;
  const float v = detail::select(low, x * 0x1p96f, x);
  const float first = 1.0f / root(v);
  const detail::Pair product = detail::product_pair(v, first);
  const float rest = fused(-product.low, first, fused(-product.x, first, 1.0f));
  const float y = fused(first * rest, fused(rest, 0.375f, 0.5f), first);
  const float limit = 1.0f / root(x);  // of zeros, infinity, negative numbers and NaN
  const float finite = detail::select(low, y * 0x1p48f, y);
  return detail::select((x > 0) & (x < detail::infinity()), finite, limit);
#endif
}

// 1 / sqrt(x) as two operations, each rounded.
PLANQ_HD float rsqrt_div(float x) { return detail::quotient_of(1.0f, root(x)); }

// sin x for |x| <= 2^22, else a NaN.
PLANQ_HD float sin(float x) {
  using namespace detail;
  const float y = sine_of(angle_of(x));
  return finished_sine(select(magnitude(x) < 0x1p-12f, x, y), x);
}

// cos x for |x| <= 2^22, else a NaN.
PLANQ_HD float cos(float x) {
  return detail::finished_sine(detail::sine_of(detail::angle_of(x).next()), x);
}

// Sine and cosine of phase 2^-32 turns.
PLANQ_HD float sin_turn(std::uint32_t phase) {
  return detail::sine_of(detail::angle_of_phase(phase));
}
PLANQ_HD float cos_turn(std::uint32_t phase) {
  return detail::sine_of(detail::angle_of_phase(phase).next());
}

template <Function kFunction>
PLANQ_HD float value_of(float x) {
#define PLANQ_FUNCTION_VALUE(enumerator, name, function) \
  if constexpr (kFunction == Function::enumerator) return function(x);
  PLANQ_FUNCTIONS(PLANQ_FUNCTION_VALUE)
#undef PLANQ_FUNCTION_VALUE
}

}  // namespace planq::math
