// Stochastic rounding of a float to a stored float format, by a word of Philox.
#pragma once

#include "math/formats.h"
#include "math/philox.h"

namespace planq::math {

namespace detail {

// The code of a magnitude, one higher where its share of the gap to the next code is above the
// random number of the word; both are multiples of 2^-24 here.
PLANQ_HD std::uint32_t code_above(std::uint32_t code, std::uint32_t share, std::uint32_t word) {
  return code + (share > word >> 8 ? 1 : 0);
}

PLANQ_HD std::uint32_t half_code(std::uint32_t magnitude, std::uint32_t word) {
  constexpr std::uint32_t kSmallestNormal = 0x38800000u, kExponents = (127 - 15) << 10;
  if (magnitude >= kSmallestNormal)
    return code_above((magnitude >> 13) - kExponents, (magnitude & 0x1FFFu) << 11, word);
  // Codes count steps of 2^-24; the product, its floor and their difference are exact.
  const float steps = bit_cast<float>(magnitude) * 0x1p24f, whole = floor_of(steps);
  return static_cast<std::uint32_t>(whole) + (steps - whole > uniform_of<float>(word) ? 1 : 0);
}

}  // namespace detail

// Of x's two neighbours in T, the one away from zero where x's share of the gap between them is
// above the random number of the word. Beyond the finite numbers of T, to nearest.
template <class T>
PLANQ_HD T narrow_stochastic(float x, std::uint32_t word) {
  const std::uint32_t magnitude = magnitude_bits(x);
  const std::uint32_t sign = (bit_cast<std::uint32_t>(x) ^ magnitude) >> 16;
  if constexpr (std::is_same_v<T, Half>) {
    constexpr std::uint32_t kLargest = 0x477FE000u;
    if (magnitude > kLargest) return narrow<T>(x);
    return {static_cast<std::uint16_t>(sign | detail::half_code(magnitude, word))};
  } else if constexpr (std::is_same_v<T, Bfloat16>) {
    constexpr std::uint32_t kLargest = 0x7F7F0000u;
    if (magnitude > kLargest) return narrow<T>(x);
    const std::uint32_t code =
        detail::code_above(magnitude >> 16, (magnitude & 0xFFFFu) << 8, word);
    return {static_cast<std::uint16_t>(sign | code)};
  } else {
    return narrow<T>(x);
  }
}

}  // namespace planq::math
