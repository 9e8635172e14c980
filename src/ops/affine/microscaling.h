// Groups with scales of 8 bits: OCP's microscaling formats (MX) and NVFP4. Scalar functions that
// both backends call; docs/numerics/affine.md has the formulas.
#pragma once

#include "ops/affine/affine.h"

namespace planq::math {

// Elements of a group.
inline constexpr int kMxGroup = 32, kNvfp4Group = 16;

// floor(log2) of the largest number of a format.
constexpr int largest_exponent(DType dtype) {
  int exponent = 0;
  for (double rest = format_of(dtype).largest; rest >= 2; rest /= 2) ++exponent;
  return exponent;
}

// What the elements of a group become codes by.
struct FormatScale {
  std::uint8_t stored;
  float factor;   // of an element; the product is rounded to its code
  bool poisoned;  // the scale is NaN
};

// MX: a power of two, by the exponent field of the largest magnitude, whose bits `peak` are; a NaN
// is larger than an infinity, which has the exponent after that of the largest float. Below the
// smallest normal float the scale is the smallest one whatever the exponent is. `round_up`: the
// magnitude is first rounded to the code's mantissa, half up.
template <DType kCode>
PLANQ_HD FormatScale mx_scale(std::uint32_t peak, bool round_up) {
  constexpr int kLargest = largest_exponent(kCode);
  constexpr std::uint32_t kHalf = 1u << (22 - format_of(kCode).mantissa_bits);
  if (peak > Ieee<float>::kInfinity) return {0xFF, canonical_nan<float>(), true};
  const int exponent = static_cast<int>((round_up ? peak + kHalf : peak) >> 23);
  const int stored = exponent > kLargest ? exponent - kLargest : 0;
  // No scale is above 2^126, so its inverse is a normal number, and multiplying by it is exact
  // unless the product is far below the smallest code.
  return {static_cast<std::uint8_t>(stored),
          bit_cast<float>(static_cast<std::uint32_t>(254 - stored) << 23), false};
}

// NVFP4: float8_e4m3fn numbers, by a factor of the whole tensor. Clamping before rounding saturates
// and keeps the scale above 0.
PLANQ_HD FormatScale nvfp4_scale(std::uint32_t peak, float tensor_factor) {
  const float wanted = bit_cast<float>(peak) / 6.0f * tensor_factor;
  if (is_nan(wanted)) return {0x7F, canonical_nan<float>(), true};
  const auto stored = static_cast<std::uint8_t>(E4M3Codec::encode(clamp(wanted, 0x1p-9f, 448.0f)));
  return {stored, tensor_factor / float8_value<float>(stored, DType::Float8E4M3FN), false};
}

// The code of every element of a poisoned group.
template <DType kCode>
inline constexpr std::uint8_t kPoisonedCode = kCode == DType::Float4E2M1FN ? 0 : 0x7F;

// The code of an element that needs no speed.
template <DType kCode>
PLANQ_HD std::uint8_t group_code(float x, const FormatScale& scale) {
  if (scale.poisoned) return kPoisonedCode<kCode>;
  const float scaled = x * scale.factor;
  if constexpr (kCode == DType::Float4E2M1FN)
    return static_cast<std::uint8_t>(E2M1Codec::encode(scaled));
  constexpr auto kMost = static_cast<float>(format_of(kCode).largest);
  return fp8_code(scaled, -kMost, kMost, kCode);
}

// What codes are multiplied by: a stored scale, and of NVFP4 that of the tensor.
PLANQ_HD float group_scale(std::uint8_t stored, DType dtype, float tensor_scale) {
  return dtype == DType::Float8E8M0FNU
             ? e8m0_value(stored)
             : float8_value<float>(stored, DType::Float8E4M3FN) * tensor_scale;
}

}  // namespace planq::math

namespace planq::affine {

// A format of groups: MX in either rounding of its scales, or NVFP4.
template <DType kTo, DType kScaleType>
struct GroupFormat {
  static constexpr DType kCode = kTo, kStoredScale = kScaleType;
  static constexpr bool kMx = kScaleType == DType::Float8E8M0FNU;
  static constexpr int kGroup = kMx ? math::kMxGroup : math::kNvfp4Group;
  static constexpr bool kFourBit = is_four_bit(kTo);

  // Of a group whose largest magnitude has these bits.
  PLANQ_HD static math::FormatScale scale_of(std::uint32_t peak, bool round_up,
                                             float tensor_factor) {
    if constexpr (kMx)
      return math::mx_scale<kCode>(peak, round_up);
    else
      return math::nvfp4_scale(peak, tensor_factor);
  }
};
using MxFp4 = GroupFormat<DType::Float4E2M1FN, DType::Float8E8M0FNU>;
using MxFp8E4M3 = GroupFormat<DType::Float8E4M3FN, DType::Float8E8M0FNU>;
using MxFp8E5M2 = GroupFormat<DType::Float8E5M2, DType::Float8E8M0FNU>;
using Nvfp4 = GroupFormat<DType::Float4E2M1FN, DType::Float8E4M3FN>;

}  // namespace planq::affine
