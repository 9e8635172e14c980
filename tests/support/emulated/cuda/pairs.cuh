// In the place of src/cuda/pairs.cuh.
#pragma once

#include "cuda/memory_access.cuh"
#include "math/formats.h"

namespace planq::cuda {

template <class T>
std::uint32_t pair_of(float first, float second, T) {
  const std::uint32_t high = math::narrow<T>(second).bits;
  return math::narrow<T>(first).bits | high << 16;
}
inline float value_of_e4m3(unsigned code) {
  const int exponent = static_cast<int>(code >> 3 & 15), fraction = static_cast<int>(code & 7);
  if (exponent == 15 && fraction == 7) return std::nanf("");
  const int significand = exponent == 0 ? fraction : 8 + fraction;
  const float magnitude = std::ldexp(static_cast<float>(significand), std::max(exponent, 1) - 10);
  return (code & 128) != 0 ? -magnitude : magnitude;
}
inline std::uint32_t half_pair_of_codes(std::uint32_t codes, DType type) {
  if (type == DType::Float8E5M2) return codes;
  return pair_of(value_of_e4m3(codes >> 8 & 255), value_of_e4m3(codes >> 24), math::Half{});
}
template <class T>
float of_pair(std::uint32_t pair, int i) {
  return math::widen(T{static_cast<std::uint16_t>(pair >> 16 * i)});
}

inline std::uint32_t masked_and_flipped(std::uint32_t word, std::uint32_t mask,
                                        std::uint32_t flips) {
  return (word & mask) ^ flips;
}

inline std::uint32_t bits_of_both(std::uint32_t under, std::uint32_t other, std::uint32_t mask) {
  return (under & mask) | (other & ~mask);
}
inline std::uint32_t signs_of_halves(std::uint32_t word) {
  return (word & 0x8000u ? 0xFFFFu : 0u) | (word & 0x80000000u ? 0xFFFF0000u : 0u);
}

template <bool kSigned, int kBits>
std::uint32_t codes_of_pair(float first, float second, std::uint32_t above) {
  constexpr float kLowest = kSigned ? -(1 << (kBits - 1)) : 0;
  const auto code = [](float x) {
    const float bounded = math::clamp(x == x ? x : 0.0f, kLowest, kLowest + (1 << kBits) - 1);
    return static_cast<std::uint32_t>(static_cast<int>(math::rne(bounded))) & ((1u << kBits) - 1);
  };
  return above << 2 * kBits | code(second) << kBits | code(first);
}

template <class T, class Better>
std::uint32_t better_pair(std::uint32_t a, std::uint32_t b, const Better& better) {
  std::uint32_t result = 0;
  for (int i = 0; i < 2; ++i) {
    const float x = of_pair<T>(a, i), y = of_pair<T>(b, i);
    const std::uint32_t from = x != x || better(x, y) ? a : b;
    result |= from & 0xFFFFu << 16 * i;
  }
  return result;
}
template <class T>
std::uint32_t pair_max(std::uint32_t a, std::uint32_t b) {
  return better_pair<T>(a, b, [](float x, float y) { return x > y; });
}
template <class T>
std::uint32_t pair_min(std::uint32_t a, std::uint32_t b) {
  return better_pair<T>(a, b, [](float x, float y) { return x < y; });
}

}  // namespace planq::cuda
