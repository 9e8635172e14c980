// In the place of src/cuda/codes.cuh.
#pragma once

#include "core/architectures.h"
#include "cuda/memory_access.cuh"
#include "math/formats.h"

namespace planq::cuda {

enum class Codes { Byte, Nibble, E4M3, E5M2 };

constexpr Codes codes_of(DType output) {
  return output == DType::Float8E4M3FN ? Codes::E4M3
         : output == DType::Float8E5M2 ? Codes::E5M2
         : is_four_bit(output)         ? Codes::Nibble
                                       : Codes::Byte;
}

template <class In>
inline constexpr int kPerVector = kVectorBytes / static_cast<int>(sizeof(In));

template <class In>
math::Compute<In> element_of(const uint4& vector, int i) {
  In elements[kPerVector<In>];
  std::memcpy(elements, &vector, sizeof vector);
  return math::widen(elements[i]);
}

// Quotients of plain numbers, by the steps of src.
template <class C>
inline constexpr C kSmallScale = C(0x1p-70);
template <class C>
inline constexpr C kLargeScale = C(0x1p+70);
template <class C>
inline constexpr C kLargeQuotient = C(0x1p+21);
inline float inverse_of(float scale) { return 1 / scale; }
template <bool kDivide>
float quotient(float x, float scale, float inverse) {
  const float product = x * inverse;
  return kDivide ? std::fma(std::fma(-product, scale, x), inverse, product) : product;
}
inline std::uint32_t rounded(float quotient) { return __float_as_uint(quotient + 0x1.8p+23f); }

// Numbers inside the bounds, and NaN.
template <Codes kCodes>
std::uint32_t float8_quad(float a, float b, float c, float d) {
  const auto code = [](float x) {
    return kCodes == Codes::E4M3 ? math::E4M3Codec::encode(x) : math::E5M2Codec::encode(x);
  };
  return code(a) | code(b) << 8 | code(c) << 16 | code(d) << 24;
}

template <Codes kCodes, int kCount>
auto pack(const std::uint32_t (&codes)[kCount], NibbleOrder order) {
  constexpr int kPerByte = kCodes == Codes::Nibble ? 2 : 1;
  std::uint64_t word = 0;
  for (int i = 0; i < kCount; ++i) {
    const bool high = (i % 2 == 1) == (order == NibbleOrder::LowFirst);
    const int at = kPerByte == 1 ? 8 * i : i / 2 * 8 + (high ? 4 : 0);
    word |= std::uint64_t{codes[i] & (kPerByte == 1 ? 0xFFu : 0xFu)} << at;
  }
  return static_cast<Word<kCount / kPerByte>>(word);
}

enum class Bounds { None };
template <Codes kCodes, Bounds kBounds, int kCount>
Word<kCount> finish(const std::uint32_t (&codes)[kCount], DType, NibbleOrder order) {
  if constexpr (kCodes == Codes::Byte) return pack<kCodes>(codes, order);
  std::uint64_t word = 0;
  for (int i = 0; i < kCount; ++i)
    word |= std::uint64_t{float8_quad<kCodes>(__uint_as_float(codes[i]), 0, 0, 0)} << 8 * i;
  return static_cast<Word<kCount>>(word);
}

}  // namespace planq::cuda
