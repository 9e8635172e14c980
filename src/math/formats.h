// Conversions between compute types and stored element types, bit by bit and without tables:
// float16, bfloat16, float8_e4m3fn, float8_e5m2, float8_e8m0fnu, float4_e2m1fn and packed 4-bit
// codes.
//
// Narrowing rounds to nearest even and keeps subnormals. A NaN becomes the canonical NaN of the
// target.
#pragma once

#include "core/dtype.h"
#include "math/ieee.h"

namespace planq::math {

// Storage tags: trivially copyable, the size of the stored element.
struct Half {
  std::uint16_t bits;
};
struct Bfloat16 {
  std::uint16_t bits;
};

// A small binary float that fits in `Storage`: exponent and mantissa widths, and whether the top
// exponent holds infinities (IEEE) or finite values (the "fn" formats).
template <int kExponentBits, int kMantissaBits, bool kIeee, std::uint32_t kNanCode>
struct SmallFloat {
  static constexpr int kBias = (1 << (kExponentBits - 1)) - 1;
  static constexpr int kSignShift = kExponentBits + kMantissaBits;

  // Rounds a double-precision-or-smaller magnitude given in C. Overflow goes to infinity (IEEE) or
  // to the code above the largest finite one, so callers that saturate clamp before.
  template <class C>
  PLANQ_HD static std::uint32_t encode(C x) {
    using Bits = typename Ieee<C>::Bits;
    constexpr int kFraction = std::is_same_v<C, float> ? 23 : 52;
    constexpr int kSourceBias = std::is_same_v<C, float> ? 127 : 1023;
    const Bits bits = bit_cast<Bits>(x);
    const std::uint32_t sign = static_cast<std::uint32_t>(bits >> (sizeof(Bits) * 8 - 1))
                               << kSignShift;
    const Bits magnitude = bits & ~Ieee<C>::kSign;
    if (magnitude > Ieee<C>::kInfinity) return kNanCode;
    if (magnitude == Ieee<C>::kInfinity) return sign | overflow();
    const int exponent = static_cast<int>(magnitude >> kFraction) - kSourceBias;
    if (exponent > kBias + 1) return sign | overflow();
    if (exponent < -kBias - kMantissaBits - 1) return sign;
    const Bits significand = (magnitude & ((Bits{1} << kFraction) - 1)) | (Bits{1} << kFraction);
    // Below the smallest normal exponent the target keeps fewer fraction bits.
    const int smallest = 1 - kBias;
    const int lost = exponent < smallest ? smallest - exponent : 0;
    const int shift = kFraction - kMantissaBits + lost;
    const Bits half = Bits{1} << (shift - 1);
    const Bits kept = significand >> shift;
    const Bits rest = significand & ((Bits{1} << shift) - 1);
    const Bits up = rest > half || (rest == half && (kept & 1)) ? 1 : 0;
    // The implicit one adds the first exponent step, so a carry moves into the exponent by itself.
    const std::uint32_t base =
        lost ? 0u : static_cast<std::uint32_t>(exponent + kBias - 1) << kMantissaBits;
    const std::uint32_t code = base + static_cast<std::uint32_t>(kept + up);
    return sign | (code > overflow() ? overflow() : code);
  }

  PLANQ_HD static constexpr std::uint32_t overflow() {
    return kIeee ? ((1u << kExponentBits) - 1) << kMantissaBits : (1u << kSignShift) - 1;
  }
};

using Float16Codec = SmallFloat<5, 10, true, 0x7E00>;
using E4M3Codec = SmallFloat<4, 3, false, 0x7F>;
using E5M2Codec = SmallFloat<5, 2, true, 0x7F>;
// All codes are finite: what is beyond the largest becomes it, and a NaN becomes 0.
using E2M1Codec = SmallFloat<2, 1, false, 0>;

// The number that a float4_e2m1fn code stands for; bits above the lowest four do not count.
PLANQ_HD float e2m1_value(std::uint32_t code) {
  // The fields of the code as those of a float, and the difference of the exponent biases.
  const float magnitude = bit_cast<float>((code & 7u) << 22) * 0x1p126f;
  return bit_cast<float>(bit_cast<std::uint32_t>(magnitude) | (code & 8u) << 28);
}
// 2^(code - 127), which is subnormal for the code 0; a NaN for 255.
PLANQ_HD float e8m0_value(std::uint8_t code) {
  if (code == 255) return canonical_nan<float>();
  return bit_cast<float>(code == 0 ? 0x00400000u : static_cast<std::uint32_t>(code) << 23);
}

PLANQ_HD float widen(Half x) {
  const std::uint32_t sign = static_cast<std::uint32_t>(x.bits & 0x8000u) << 16;
  const std::uint32_t magnitude = x.bits & 0x7FFFu;
  if (magnitude >= 0x7C00u) return bit_cast<float>(sign | 0x7F800000u | (magnitude << 13));
  // 2^112 moves the exponent bias from 15 to 127, exactly, subnormals included.
  const float scaled = bit_cast<float>(magnitude << 13) * 5.192296858534828e33f;
  return bit_cast<float>(bit_cast<std::uint32_t>(scaled) | sign);
}
PLANQ_HD float widen(Bfloat16 x) {
  return bit_cast<float>(static_cast<std::uint32_t>(x.bits) << 16);
}
PLANQ_HD float widen(float x) { return x; }
PLANQ_HD double widen(double x) { return x; }

template <class C>
PLANQ_HD Half to_half(C x) {
  return {static_cast<std::uint16_t>(Float16Codec::encode(x))};
}
// bfloat16 has float's exponent range, so from float it is a rounding of the bit pattern.
PLANQ_HD Bfloat16 to_bfloat16(float x) {
  if (is_nan(x)) return {0x7FC0};
  const std::uint32_t bits = bit_cast<std::uint32_t>(x);
  return {static_cast<std::uint16_t>((bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16)};
}
PLANQ_HD Bfloat16 to_bfloat16(double x) {
  using Wide = SmallFloat<8, 7, true, 0x7FC0>;
  return {static_cast<std::uint16_t>(Wide::encode(x))};
}

// The compute type of a stored type.
template <class T>
struct ComputeOf {
  using type = float;
};
template <>
struct ComputeOf<double> {
  using type = double;
};
template <class T>
using Compute = typename ComputeOf<T>::type;

// Rounds a value of the compute type to a stored type; a NaN becomes the type's canonical one.
template <class T>
PLANQ_HD T narrow(Compute<T> x) {
  if constexpr (std::is_same_v<T, Half>)
    return to_half(x);
  else if constexpr (std::is_same_v<T, Bfloat16>)
    return to_bfloat16(x);
  else
    return is_nan(x) ? canonical_nan<T>() : x;
}

// The stored type of a float dtype.
template <DType kDType>
struct StoredType;
template <>
struct StoredType<DType::Float16> {
  using type = Half;
};
template <>
struct StoredType<DType::BFloat16> {
  using type = Bfloat16;
};
template <>
struct StoredType<DType::Float32> {
  using type = float;
};
template <>
struct StoredType<DType::Float64> {
  using type = double;
};
template <DType kDType>
using Stored = typename StoredType<kDType>::type;

}  // namespace planq::math
