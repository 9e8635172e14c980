// Blocks of GGUF files, a struct for each type: the integer code of an element, the float32 scale
// of the sub-block that it is in, and of some types a minimum. docs/numerics/gguf.md has the
// formulas. Blocks are read byte by byte, from any address.
#pragma once

#include <cstdint>
#include <initializer_list>

#include "math/conversions.h"
#include "ops/gguf/grids.h"
#include "ops/gguf/vocabulary.h"

namespace planq::gguf {

using Bytes = const std::uint8_t*;

// --- Parts of bytes and words --------------------------------------------------------------------

PLANQ_HD int nibble(int bits, int i) { return bits >> 4 * i & 15; }
PLANQ_HD int two_bits(int bits, int i) { return bits >> 2 * i & 3; }
PLANQ_HD int bit(std::uint32_t bits, int i) { return static_cast<int>(bits >> i & 1); }
PLANQ_HD constexpr int as_signed(std::uint8_t byte) { return static_cast<std::int8_t>(byte); }

PLANQ_HD std::uint32_t word16(Bytes at) { return at[0] | static_cast<std::uint32_t>(at[1]) << 8; }
PLANQ_HD std::uint32_t word32(Bytes at) { return word16(at) | word16(at + 2) << 16; }
PLANQ_HD float half_at(Bytes at) {
  return math::widened(math::Half{static_cast<std::uint16_t>(word16(at))});
}
PLANQ_HD float times(float scale, int factor) { return scale * static_cast<float>(factor); }

// --- Codes and scales that several types have ----------------------------------------------------

// Of 32 elements in 16 bytes: those of the low nibbles come first.
PLANQ_HD int split_nibble(Bytes codes, int e) { return nibble(codes[e % 16], e / 16); }
// Of 256 elements in 64 bytes: four neighbouring quarters of 128 share 32 bytes.
PLANQ_HD int split_pair(Bytes codes, int e) {
  return two_bits(codes[32 * (e / 128) + e % 32], e % 128 / 32);
}

// Eight signed bytes in a word, the first one lowest.
constexpr std::uint64_t bytes_together(std::initializer_list<int> bytes) {
  std::uint64_t word = 0;
  int at = 0;
  for (const int byte : bytes) word |= static_cast<std::uint64_t>(byte & 0xFF) << 8 * at++;
  return word;
}
inline constexpr std::uint64_t kNonLinearLow =
    bytes_together({-127, -104, -83, -65, -49, -35, -22, -10});
inline constexpr std::uint64_t kNonLinearHigh = bytes_together({1, 13, 25, 38, 53, 69, 89, 113});
// The number of a code of iq4_nl and iq4_xs.
PLANQ_HD constexpr int non_linear(int code) {
  const std::uint64_t word = code < 8 ? kNonLinearLow : kNonLinearHigh;
  return as_signed(static_cast<std::uint8_t>(word >> 8 * (code % 8)));
}
// Twice the number of a float4_e2m1fn code. As an integer, so that the code 8 is +0.
PLANQ_HD constexpr int twice_e2m1(int code) {
  const int magnitude = static_cast<int>(0xC8643210u >> 4 * (code % 8) & 15u);
  return code < 8 ? magnitude : -magnitude;
}

// Eight scales and eight minima of 6 bits in 12 bytes, as q4_k and q5_k have them.
PLANQ_HD int scale_of_six(Bytes s, int j) {
  return j < 4 ? s[j] & 63 : (s[j + 4] & 15) + 16 * (s[j - 4] >> 6);
}
PLANQ_HD int minimum_of_six(Bytes s, int j) {
  return j < 4 ? s[j + 4] & 63 : (s[j + 4] >> 4) + 16 * (s[j] >> 6);
}

// --- Types ---------------------------------------------------------------------------------------

template <GgufType kOwn>
struct Shaped {
  static constexpr GgufType kType = kOwn;
  static constexpr int kElements = elements_of(kOwn);
  static constexpr int kBytes = bytes_of(kOwn);
  static constexpr int kSubBlock = sub_block_of(kOwn);
};

// The float16 scale of a whole block, at a byte of it.
template <int kAt>
struct OneScale {
  static constexpr int kScaleAt = kAt;
  PLANQ_HD static float scale(Bytes block, int) { return half_at(block + kAt); }
};
// The same at the first byte, and a float16 minimum behind it.
struct OneMinimum : OneScale<0> {
  PLANQ_HD static float minimum(Bytes block, int) { return half_at(block + 2); }
};
// A scale and a minimum for every 32 elements, as q4_k and q5_k have them.
struct SixBitScales {
  PLANQ_HD static float scale(Bytes block, int e) {
    return times(half_at(block), scale_of_six(block + 4, e / 32));
  }
  PLANQ_HD static float minimum(Bytes block, int e) {
    return times(-half_at(block + 2), minimum_of_six(block + 4, e / 32));
  }
};

template <GgufType kType>
struct Block;

template <>
struct Block<GgufType::Q4_0> : Shaped<GgufType::Q4_0>, OneScale<0> {
  PLANQ_HD static int code(Bytes block, int e) { return split_nibble(block + 2, e) - 8; }
};

template <>
struct Block<GgufType::Q4_1> : Shaped<GgufType::Q4_1>, OneMinimum {
  PLANQ_HD static int code(Bytes block, int e) { return split_nibble(block + 4, e); }
};

template <>
struct Block<GgufType::Q5_0> : Shaped<GgufType::Q5_0>, OneScale<0> {
  PLANQ_HD static int code(Bytes block, int e) {
    return split_nibble(block + 6, e) + 16 * bit(word32(block + 2), e) - 16;
  }
};

template <>
struct Block<GgufType::Q5_1> : Shaped<GgufType::Q5_1>, OneMinimum {
  PLANQ_HD static int code(Bytes block, int e) {
    return split_nibble(block + 8, e) + 16 * bit(word32(block + 4), e);
  }
};

template <>
struct Block<GgufType::Q8_0> : Shaped<GgufType::Q8_0>, OneScale<0> {
  PLANQ_HD static int code(Bytes block, int e) { return as_signed(block[2 + e]); }
};

// The sum in bytes 2 and 3 is for products: elements do without it.
template <>
struct Block<GgufType::Q8_1> : Shaped<GgufType::Q8_1>, OneScale<0> {
  PLANQ_HD static int code(Bytes block, int e) { return as_signed(block[4 + e]); }
};

// Likewise the sums from byte 260 on.
template <>
struct Block<GgufType::Q8_K> : Shaped<GgufType::Q8_K> {
  PLANQ_HD static int code(Bytes block, int e) { return as_signed(block[4 + e]); }
  PLANQ_HD static float scale(Bytes block, int) { return math::bit_cast<float>(word32(block)); }
};

template <>
struct Block<GgufType::Q2_K> : Shaped<GgufType::Q2_K> {
  PLANQ_HD static int code(Bytes block, int e) { return split_pair(block + 16, e); }
  PLANQ_HD static float scale(Bytes block, int e) {
    return times(half_at(block + 80), nibble(block[e / 16], 0));
  }
  PLANQ_HD static float minimum(Bytes block, int e) {
    return times(-half_at(block + 82), nibble(block[e / 16], 1));
  }
};

template <>
struct Block<GgufType::Q3_K> : Shaped<GgufType::Q3_K> {
  PLANQ_HD static int code(Bytes block, int e) {
    return split_pair(block + 32, e) + 4 * bit(block[e % 32], e / 32) - 4;
  }
  PLANQ_HD static float scale(Bytes block, int e) {
    const Bytes s = block + 96;
    const int j = e / 16;
    const int six_bits = nibble(s[j % 8], j / 8) + 16 * two_bits(s[8 + j % 4], j / 4);
    return times(half_at(block + 108), six_bits - 32);
  }
};

template <>
struct Block<GgufType::Q4_K> : Shaped<GgufType::Q4_K>, SixBitScales {
  PLANQ_HD static int code(Bytes block, int e) {
    return nibble(block[16 + 32 * (e / 64) + e % 32], e / 32 % 2);
  }
};

template <>
struct Block<GgufType::Q5_K> : Shaped<GgufType::Q5_K>, SixBitScales {
  PLANQ_HD static int code(Bytes block, int e) {
    return nibble(block[48 + 32 * (e / 64) + e % 32], e / 32 % 2) +
           16 * bit(block[16 + e % 32], e / 32);
  }
};

template <>
struct Block<GgufType::Q6_K> : Shaped<GgufType::Q6_K> {
  PLANQ_HD static int code(Bytes block, int e) {
    const int r = e % 128;
    return nibble(block[64 * (e / 128) + r % 64], r / 64) + 16 * split_pair(block + 128, e) - 32;
  }
  PLANQ_HD static float scale(Bytes block, int e) {
    return times(half_at(block + 208), as_signed(block[192 + e / 16]));
  }
};

template <>
struct Block<GgufType::Iq4Nl> : Shaped<GgufType::Iq4Nl>, OneScale<0> {
  PLANQ_HD static int code(Bytes block, int e) { return non_linear(split_nibble(block + 2, e)); }
};

template <>
struct Block<GgufType::Iq4Xs> : Shaped<GgufType::Iq4Xs> {
  PLANQ_HD static int code(Bytes block, int e) {
    return non_linear(split_nibble(block + 8 + 16 * (e / 32), e % 32));
  }
  PLANQ_HD static float scale(Bytes block, int e) {
    const int j = e / 32;
    const int high = two_bits(static_cast<int>(word16(block + 2)), j);
    return times(half_at(block), nibble(block[4 + j / 2], j % 2) + 16 * high - 32);
  }
};

template <>
struct Block<GgufType::Mxfp4> : Shaped<GgufType::Mxfp4> {
  PLANQ_HD static int code(Bytes block, int e) { return twice_e2m1(split_nibble(block + 1, e)); }
  // 2^(x - 128), which is subnormal for the codes 0 and 1.
  PLANQ_HD static float scale(Bytes block, int) {
    const std::uint32_t x = block[0];
    return math::bit_cast<float>(x < 2 ? 0x00200000u << x : (x - 1) << 23);
  }
};

template <>
struct Block<GgufType::Nvfp4> : Shaped<GgufType::Nvfp4> {
  PLANQ_HD static int code(Bytes block, int e) {
    return twice_e2m1(nibble(block[4 + 8 * (e / 16) + e % 8], e % 16 / 8));
  }
  // Half of an unsigned float8_e4m3: its highest bit does not count, but in the code of a NaN,
  // which is 0.
  PLANQ_HD static float scale(Bytes block, int e) {
    const std::uint32_t x = block[e / 16];
    if (x == 0x7F) return 0;
    const std::uint32_t exponent = x >> 3 & 15;
    const int mantissa = static_cast<int>(exponent == 0 ? x & 7 : 8 + (x & 7));
    // 2^(exponent - 11), of which 0 has the exponent of 1.
    return times(math::bit_cast<float>((exponent + (exponent == 0) + 116) << 23), mantissa);
  }
};

template <>
struct Block<GgufType::Tq1_0> : Shaped<GgufType::Tq1_0>, OneScale<52> {
  PLANQ_HD static int code(Bytes block, int e) {
    if (e < 160) return trit(block[e % 32], e / 32) - 1;
    if (e < 240) return trit(block[32 + (e - 160) % 16], (e - 160) / 16) - 1;
    return trit(block[48 + (e - 240) % 4], (e - 240) / 4) - 1;
  }

 private:
  // A digit to base 3 of a byte that is a fraction of 256.
  PLANQ_HD static int trit(int byte, int place) {
    for (int i = 0; i < place; ++i) byte *= 3;
    return (byte & 0xFF) * 3 >> 8;
  }
};

template <>
struct Block<GgufType::Tq2_0> : Shaped<GgufType::Tq2_0>, OneScale<64> {
  PLANQ_HD static int code(Bytes block, int e) { return split_pair(block, e) - 1; }
};

template <>
struct Block<GgufType::Q1_0> : Shaped<GgufType::Q1_0>, OneScale<0> {
  PLANQ_HD static int code(Bytes block, int e) { return 2 * bit(block[2 + e / 8], e % 8) - 1; }
};

template <>
struct Block<GgufType::Q2_0> : Shaped<GgufType::Q2_0>, OneScale<0> {
  PLANQ_HD static int code(Bytes block, int e) { return two_bits(block[2 + e / 4], e % 4) - 1; }
};

// --- Types with grids ----------------------------------------------------------------------------

// Types whose codes come eight at a time: eight() of the type has those from 8 i on, as signed
// bytes, the first one lowest. kLargest: the largest magnitude of a code.
template <class Own>
struct EightCodes {
  PLANQ_HD static int code(Bytes block, int e) {
    return as_signed(static_cast<std::uint8_t>(Own::eight(block, e / 8) >> e % 8 * 8));
  }
};
template <class B>
concept HasEights = requires(Bytes block) { B::eight(block, 0); };

// An odd factor of a scale, of its other bits.
PLANQ_HD float times_odd(float scale, int bits) { return times(scale, 2 * bits + 1); }

// Of 32 elements, four points, then 28 bits of signs and four of the scale.
template <>
struct Block<GgufType::Iq2Xxs> : Shaped<GgufType::Iq2Xxs>, EightCodes<Block<GgufType::Iq2Xxs>> {
  static constexpr int kLargest = 43;
  PLANQ_HD static std::uint64_t eight(Bytes block, int i) {
    const Bytes own = block + 2 + 8 * (i / 4);
    const std::uint32_t signs = even_signs(word32(own + 4) >> 7 * (i % 4) & 127);
    return with_eight_signs(iq2_xxs_point(own[i % 4]), signs);
  }
  PLANQ_HD static float scale(Bytes block, int e) {
    return times_odd(half_at(block), nibble(block[9 + 8 * (e / 32)], 1)) * 0.125f;
  }
};

template <>
struct Block<GgufType::Iq2Xs> : Shaped<GgufType::Iq2Xs>, EightCodes<Block<GgufType::Iq2Xs>> {
  static constexpr int kLargest = 43;
  PLANQ_HD static std::uint64_t eight(Bytes block, int i) {
    const std::uint32_t own = word16(block + 2 + 2 * i);
    return with_eight_signs(iq2_xs_point(static_cast<int>(own & 511)), even_signs(own >> 9));
  }
  PLANQ_HD static float scale(Bytes block, int e) {
    return times_odd(half_at(block), nibble(block[66 + e / 32], e / 16 % 2)) * 0.125f;
  }
};

template <>
struct Block<GgufType::Iq2S> : Shaped<GgufType::Iq2S>, EightCodes<Block<GgufType::Iq2S>> {
  static constexpr int kLargest = 43;
  PLANQ_HD static std::uint64_t eight(Bytes block, int i) {
    const int point = block[2 + i] | two_bits(block[66 + i / 4], i % 4) << 8;
    return with_eight_signs(iq2_s_point(point), block[34 + i]);
  }
  PLANQ_HD static float scale(Bytes block, int e) {
    return times_odd(half_at(block), nibble(block[74 + e / 32], e / 16 % 2)) * 0.125f;
  }
};

template <>
struct Block<GgufType::Iq3Xxs> : Shaped<GgufType::Iq3Xxs>, EightCodes<Block<GgufType::Iq3Xxs>> {
  static constexpr int kLargest = 62;
  PLANQ_HD static std::uint64_t eight(Bytes block, int i) {
    const std::uint32_t signs = even_signs(word32(block + 66 + i / 4 * 4) >> 7 * (i % 4) & 127);
    return with_eight_signs(
        two_words(iq3_xxs_point(block[2 + 2 * i]), iq3_xxs_point(block[3 + 2 * i])), signs);
  }
  PLANQ_HD static float scale(Bytes block, int e) {
    return times_odd(half_at(block), nibble(block[69 + 4 * (e / 32)], 1)) * 0.25f;
  }
};

template <>
struct Block<GgufType::Iq3S> : Shaped<GgufType::Iq3S>, EightCodes<Block<GgufType::Iq3S>> {
  static constexpr int kLargest = 15;
  PLANQ_HD static std::uint64_t eight(Bytes block, int i) {
    return with_eight_signs(two_words(point(block, 2 * i), point(block, 2 * i + 1)), block[74 + i]);
  }
  PLANQ_HD static float scale(Bytes block, int e) {
    return times_odd(half_at(block), nibble(block[106 + e / 64], e / 32 % 2));
  }

 private:
  PLANQ_HD static std::uint32_t point(Bytes block, int i) {
    return iq3_s_point(block[2 + i] | bit(block[66 + i / 8], i % 8) << 8);
  }
};

// Numbers of iq1 types are -1, 0 or 1, and an eighth above or below. So codes are eight times as
// large.
template <>
struct Block<GgufType::Iq1S> : Shaped<GgufType::Iq1S>, EightCodes<Block<GgufType::Iq1S>> {
  static constexpr int kLargest = 9;
  PLANQ_HD static std::uint64_t eight(Bytes block, int i) {
    const int high = head(block, i / 4);
    return iq1_eight(block[2 + i] | (high >> 3 * (i % 4) & 7) << 8, high < 0x8000);
  }
  PLANQ_HD static float scale(Bytes block, int e) {
    return times_odd(half_at(block), head(block, e / 32) >> 12 & 7) * 0.125f;
  }

 private:
  PLANQ_HD static int head(Bytes block, int j) {
    return static_cast<int>(word16(block + 34 + 2 * j));
  }
};

// The scale of the block is cut into four, which are the uppermost bits of words of scales.
template <>
struct Block<GgufType::Iq1M> : Shaped<GgufType::Iq1M>, EightCodes<Block<GgufType::Iq1M>> {
  static constexpr int kLargest = 9;
  PLANQ_HD static std::uint64_t eight(Bytes block, int i) {
    const int high = nibble(block[32 + i / 2], i % 2);
    return iq1_eight(block[i] | (high & 7) << 8, high < 8);
  }
  PLANQ_HD static float scale(Bytes block, int e) {
    const Bytes s = block + 48;
    const int bits = s[1] >> 4 | (s[3] & 0xF0) | (s[5] & 0xF0) << 4 | (s[7] & 0xF0) << 8;
    const float whole = math::widened(math::Half{static_cast<std::uint16_t>(bits)});
    const int j = e / 16;
    const auto three = static_cast<int>(word16(s + j / 4 * 2) >> 3 * (j % 4) & 7);
    return times_odd(whole, three) * 0.125f;
  }
};

// --- Values --------------------------------------------------------------------------------------

// In every type, neighbours of an aligned run of so many share their scale and their minimum.
inline constexpr int kRun = 16;

// What the elements of the run from `first` on have in common, and the numbers that they are.
template <class B>
struct Run {
  static constexpr bool kHasMinimum = requires(Bytes block) { B::minimum(block, 0); };
  float scale, minimum = 0;

  PLANQ_HD Run(Bytes block, int first) : scale(B::scale(block, first)) {
    if constexpr (kHasMinimum) minimum = B::minimum(block, first);
  }
  PLANQ_HD float value(Bytes block, int e) const {
    const float product = times(scale, B::code(block, e));
    return kHasMinimum ? product + minimum : product;
  }
  // Those of eight elements, the first of which is a multiple of eight.
  PLANQ_HD void eight_values(Bytes block, int first, float (&values)[8]) const {
    if constexpr (HasEights<B>) {
      const std::uint64_t codes = B::eight(block, first / 8);
      for (int i = 0; i < 8; ++i)
        values[i] = times(scale, as_signed(static_cast<std::uint8_t>(codes >> 8 * i)));
    } else {
      for (int i = 0; i < 8; ++i) values[i] = value(block, first + i);
    }
  }
};

// Calls use(Block<type>{}).
template <int kAt = 0, class Use>
auto by_type(GgufType type, const Use& use) {
  constexpr GgufType kOwn = static_cast<GgufType>(kAt);
  if constexpr (kAt + 1 < static_cast<int>(kNames<GgufType>.size()))
    if (type != kOwn) return by_type<kAt + 1>(type, use);
  return use(Block<kOwn>{});
}

}  // namespace planq::gguf
