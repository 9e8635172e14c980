// How floats become blocks of GGUF files, a struct for each type; docs/numerics/gguf.md has the
// rules. Four steps, which both backends take one after another:
//
//   1. A unit, elements whose scale is found together, is measured: quantizer_loops.h.
//   2. head() makes of the fits of a block's units what its bytes beside the codes say, and
//      factors() makes of the head what the codes of a unit are computed with.
//   3. Each element becomes its code, as the block stores it: quantizer_loops.h.
//   4. byte() makes a byte of the block of the head and the codes.
//
// Any element may be infinite or NaN. Comparisons are false for NaN, and a float that becomes an
// integer is first clamped to the range that is written beside it, where a NaN counts as 0.
#pragma once

#include <cstdint>

#include "math/formats.h"
#include "ops/gguf/blocks.h"

namespace planq::gguf {

// What step 1 finds: the scale of a unit, or what it is made of, and of some types a minimum.
struct Fit {
  float first, second;
};
// What step 3 computes with.
struct Factors {
  float first, second;
};

// Where |peak| or all scales are smaller, they count as zeros.
inline constexpr float kNegligible = 1e-15f;

// --- Numbers -------------------------------------------------------------------------------------

PLANQ_HD std::uint16_t half_of(float x) { return math::narrow<math::Half>(x).bits; }
PLANQ_HD float of_half(std::uint16_t bits) { return math::widen(math::Half{bits}); }
PLANQ_HD float inverse(float d) { return d == 0 ? 0.0f : 1 / d; }
PLANQ_HD float magnitude(float x) { return math::bit_cast<float>(math::magnitude_bits(x)); }
// To the nearest, ties to even.
PLANQ_HD int whole(float x, float low, float high) {
  return static_cast<int>(math::rne(math::clamp(math::is_nan(x) ? 0.0f : x, low, high)));
}
PLANQ_HD int byte_of(std::uint32_t word, int i) { return static_cast<int>(word >> 8 * i & 0xFF); }

// Some bits of each of kCount codes, kApart from each other, side by side from the lowest on.
template <int kCount, int kApart, int kWidth, int kShift = 0>
PLANQ_HD int joined(Bytes codes) {
  int bits = 0;
  for (int i = 0; i < kCount; ++i)
    bits |= (codes[i * kApart] >> kShift & ((1 << kWidth) - 1)) << kWidth * i;
  return bits;
}

// The first of the largest magnitude, +0 where there is none above it.
template <int kCount>
PLANQ_HD float peak_of(const Fit* fits) {
  float largest = 0, peak = 0;
  for (int j = 0; j < kCount; ++j) {
    const float own = magnitude(fits[j].first);
    peak = own > largest ? fits[j].first : peak;
    largest = own > largest ? own : largest;
  }
  return peak;
}

// --- Heads that several types have ---------------------------------------------------------------

// Of a block with one unit.
struct OneHead {
  std::uint16_t d, m;  // as stored
  float scale;         // before it was rounded
  Factors factors;
};

template <GgufType kType>
struct OneUnit : Shaped<kType> {
  using Head = OneHead;
  static constexpr int kUnit = Shaped<kType>::kElements;
  PLANQ_HD static Factors factors(const Head& head, int) { return head.factors; }
};

// Codes are x / d, where d is the largest magnitude by kParts.
template <GgufType kType, int kParts>
struct OneScaleUnit : OneUnit<kType> {
  PLANQ_HD static OneHead head(const Fit* fits) {
    const float d = fits->first / kParts;
    return {half_of(d), 0, d, {inverse(d), 0}};
  }
};
// Codes are (x - m) / d from the minimum m on.
template <GgufType kType, int kParts>
struct OneMinimumUnit : OneUnit<kType> {
  PLANQ_HD static OneHead head(const Fit* fits) {
    const float d = (fits->second - fits->first) / kParts;
    return {half_of(d), half_of(fits->first), d, {inverse(d), fits->first}};
  }
};

// Of a block with several units: a scale of few bits for each, and minima of some types.
template <int kUnits>
struct ManyHead {
  std::uint16_t d, dmin;  // as stored
  float scale;            // before it was rounded
  std::uint8_t scales[kUnits], minima[kUnits];
};

template <GgufType kType, int kUnitElements>
struct ManyUnits : Shaped<kType> {
  static constexpr int kUnit = kUnitElements;
  static constexpr int kUnits = Shaped<kType>::kElements / kUnit;
  using Head = ManyHead<kUnits>;
};

// Scales, and minima that are subtracted, as integers up to kTop.
template <GgufType kType, int kUnitElements, int kTop>
struct MinimaUnits : ManyUnits<kType, kUnitElements> {
  using Base = ManyUnits<kType, kUnitElements>;
  using typename Base::Head;

  PLANQ_HD static Head head(const Fit* fits) {
    float scale = 0, minimum = 0;
    for (int j = 0; j < Base::kUnits; ++j) {
      scale = fits[j].first > scale ? fits[j].first : scale;
      minimum = -fits[j].second > minimum ? -fits[j].second : minimum;
    }
    Head head{};
    head.d = half_of(scale / kTop);
    head.dmin = half_of(minimum / kTop);
    for (int j = 0; j < Base::kUnits; ++j) {
      head.scales[j] = part_of(kTop / scale, fits[j].first);
      head.minima[j] = part_of(kTop / minimum, -fits[j].second);
    }
    return head;
  }
  PLANQ_HD static Factors factors(const Head& head, int j) {
    return {times(of_half(head.d), head.scales[j]), times(of_half(head.dmin), head.minima[j])};
  }

 private:
  PLANQ_HD static std::uint8_t part_of(float parts, float x) {
    return static_cast<std::uint8_t>(whole(parts * x, 0, kTop));
  }
};

// Byte `at` of eight scales and eight minima of 6 bits: the inverse of scale_of_six() and
// minimum_of_six().
PLANQ_HD int six_bits_byte(const std::uint8_t* scales, const std::uint8_t* minima, int at) {
  if (at < 4) return scales[at] | scales[at + 4] >> 4 << 6;
  if (at < 8) return minima[at - 4] | minima[at] >> 4 << 6;
  return (scales[at - 4] & 15) | (minima[at - 4] & 15) << 4;
}

// --- Types ---------------------------------------------------------------------------------------

// kBounds: where the parts of a block begin that byte() makes alike, and the block's end.
template <GgufType kType>
struct Quantizer;

template <>
struct Quantizer<GgufType::Q4_0> : OneScaleUnit<GgufType::Q4_0, -8> {
  static constexpr int kBounds[] = {0, 2, kBytes};
  PLANQ_HD static int byte(const Head& head, Bytes codes, int at) {
    return at < 2 ? byte_of(head.d, at) : joined<2, 16, 4>(codes + at - 2);
  }
};

template <>
struct Quantizer<GgufType::Q4_1> : OneMinimumUnit<GgufType::Q4_1, 15> {
  static constexpr int kBounds[] = {0, 2, 4, kBytes};
  PLANQ_HD static int byte(const Head& head, Bytes codes, int at) {
    if (at < 4) return byte_of(at < 2 ? head.d : head.m, at % 2);
    return joined<2, 16, 4>(codes + at - 4);
  }
};

template <>
struct Quantizer<GgufType::Q5_0> : OneScaleUnit<GgufType::Q5_0, -16> {
  static constexpr int kBounds[] = {0, 2, 6, kBytes};
  PLANQ_HD static int byte(const Head& head, Bytes codes, int at) {
    if (at < 2) return byte_of(head.d, at);
    return at < 6 ? joined<8, 1, 1, 4>(codes + 8 * (at - 2)) : joined<2, 16, 4>(codes + at - 6);
  }
};

template <>
struct Quantizer<GgufType::Q5_1> : OneMinimumUnit<GgufType::Q5_1, 31> {
  static constexpr int kBounds[] = {0, 2, 4, 8, kBytes};
  PLANQ_HD static int byte(const Head& head, Bytes codes, int at) {
    if (at < 4) return byte_of(at < 2 ? head.d : head.m, at % 2);
    return at < 8 ? joined<8, 1, 1, 4>(codes + 8 * (at - 4)) : joined<2, 16, 4>(codes + at - 8);
  }
};

template <>
struct Quantizer<GgufType::Q8_0> : OneScaleUnit<GgufType::Q8_0, 127> {
  static constexpr int kBounds[] = {0, 2, kBytes};
  PLANQ_HD static int byte(const Head& head, Bytes codes, int at) {
    return at < 2 ? byte_of(head.d, at) : codes[at - 2];
  }
};

template <>
struct Quantizer<GgufType::Q8_1> : OneScaleUnit<GgufType::Q8_1, 127> {
  static constexpr int kBounds[] = {0, 2, 4, kBytes};
  PLANQ_HD static int byte(const Head& head, Bytes codes, int at) {
    if (at < 2) return byte_of(head.d, at);
    if (at >= 4) return codes[at - 4];
    int sum = 0;
    for (int e = 0; e < kElements; ++e) sum += as_signed(codes[e]);
    return byte_of(half_of(times(head.scale, sum)), at - 2);
  }
};

template <>
struct Quantizer<GgufType::Q8_K> : OneUnit<GgufType::Q8_K> {
  static constexpr int kBounds[] = {0, 4, 260, kBytes};
  PLANQ_HD static Head head(const Fit* fits) {
    if (fits->first == 0) return {};
    const float factor = -127 / fits->first;
    return {0, 0, 1 / factor, {factor, 0}};
  }
  PLANQ_HD static int byte(const Head& head, Bytes codes, int at) {
    if (at < 4) return byte_of(math::bit_cast<std::uint32_t>(math::narrow<float>(head.scale)), at);
    if (at < 260) return codes[at - 4];
    int sum = 0;
    for (int e = 0; e < 16; ++e) sum += as_signed(codes[(at - 260) / 2 * 16 + e]);
    return byte_of(static_cast<std::uint32_t>(sum), at % 2);
  }
};

template <>
struct Quantizer<GgufType::Q2_K> : MinimaUnits<GgufType::Q2_K, 16, 15> {
  static constexpr int kBounds[] = {0, 16, 80, 82, kBytes};
  PLANQ_HD static int byte(const Head& head, Bytes codes, int at) {
    if (at < 16) return head.scales[at] | head.minima[at] << 4;
    if (at >= 80) return byte_of(at < 82 ? head.d : head.dmin, at % 2);
    const int i = at - 16;
    return joined<4, 32, 2>(codes + 128 * (i / 32) + i % 32);
  }
};

// Scales are stored with 32 added.
template <>
struct Quantizer<GgufType::Q3_K> : ManyUnits<GgufType::Q3_K, 16> {
  static constexpr int kBounds[] = {0, 32, 96, 104, 108, kBytes};
  PLANQ_HD static Head head(const Fit* fits) {
    const float peak = peak_of<kUnits>(fits);
    if (peak == 0) return {};
    const float factor = -32 / peak;
    Head head{};
    head.d = half_of(1 / factor);
    for (int j = 0; j < kUnits; ++j)
      head.scales[j] = static_cast<std::uint8_t>(whole(factor * fits[j].first, -32, 31) + 32);
    return head;
  }
  PLANQ_HD static Factors factors(const Head& head, int j) {
    return {times(of_half(head.d), head.scales[j] - 32), 0};
  }
  PLANQ_HD static int byte(const Head& head, Bytes codes, int at) {
    if (at < 32) return joined<8, 32, 1, 2>(codes + at);
    if (at < 96) {
      const int i = at - 32;
      return joined<4, 32, 2>(codes + 128 * (i / 32) + i % 32);
    }
    if (at < 104) return joined<2, 8, 4>(head.scales + at - 96);
    return at < 108 ? joined<4, 4, 2, 4>(head.scales + at - 104) : byte_of(head.d, at - 108);
  }
};

template <>
struct Quantizer<GgufType::Q4_K> : MinimaUnits<GgufType::Q4_K, 32, 63> {
  static constexpr int kBounds[] = {0, 2, 4, 8, 12, 16, kBytes};
  PLANQ_HD static int byte(const Head& head, Bytes codes, int at) {
    if (at < 4) return byte_of(at < 2 ? head.d : head.dmin, at % 2);
    if (at < 16) return six_bits_byte(head.scales, head.minima, at - 4);
    const int i = at - 16;
    return joined<2, 32, 4>(codes + 64 * (i / 32) + i % 32);
  }
};

template <>
struct Quantizer<GgufType::Q5_K> : MinimaUnits<GgufType::Q5_K, 32, 63> {
  static constexpr int kBounds[] = {0, 2, 4, 8, 12, 16, 48, kBytes};
  PLANQ_HD static int byte(const Head& head, Bytes codes, int at) {
    if (at < 4) return byte_of(at < 2 ? head.d : head.dmin, at % 2);
    if (at < 16) return six_bits_byte(head.scales, head.minima, at - 4);
    if (at < 48) return joined<8, 32, 1, 4>(codes + at - 16);
    const int i = at - 48;
    return joined<2, 32, 4>(codes + 64 * (i / 32) + i % 32);
  }
};

// Where all scales are negligible, all bytes are 0, those of the codes too.
template <>
struct Quantizer<GgufType::Q6_K> : ManyUnits<GgufType::Q6_K, 16> {
  static constexpr int kBounds[] = {0, 128, 192, 208, kBytes};
  struct Head : ManyHead<kUnits> {
    bool has_scales;
  };
  PLANQ_HD static Head head(const Fit* fits) {
    const float peak = peak_of<kUnits>(fits);
    if (magnitude(peak) < kNegligible) return {};
    const float factor = -128 / peak;
    Head head{};
    head.has_scales = true;
    head.d = half_of(1 / factor);
    for (int j = 0; j < kUnits; ++j)
      head.scales[j] = static_cast<std::uint8_t>(whole(factor * fits[j].first, -128, 127));
    return head;
  }
  PLANQ_HD static Factors factors(const Head& head, int j) {
    return {times(of_half(head.d), as_signed(head.scales[j])), 0};
  }
  PLANQ_HD static int byte(const Head& head, Bytes codes, int at) {
    if (at >= 208) return byte_of(head.d, at - 208);
    if (at >= 192) return head.scales[at - 192];
    if (!head.has_scales) return 0;
    if (at < 128) return joined<2, 64, 4>(codes + 128 * (at / 64) + at % 64);
    const int i = at - 128;
    return joined<4, 32, 2, 4>(codes + 128 * (i / 32) + i % 32);
  }
};

template <>
struct Quantizer<GgufType::Iq4Nl> : OneUnit<GgufType::Iq4Nl> {
  static constexpr int kBounds[] = {0, 2, kBytes};
  PLANQ_HD static Head head(const Fit* fits) {
    const float d = fits->first;
    return {half_of(d), 0, d, {inverse(d), 0}};
  }
  PLANQ_HD static int byte(const Head& head, Bytes codes, int at) {
    return at < 2 ? byte_of(head.d, at) : joined<2, 16, 4>(codes + at - 2);
  }
};

// Scales are stored with 32 added.
template <>
struct Quantizer<GgufType::Iq4Xs> : ManyUnits<GgufType::Iq4Xs, 32> {
  static constexpr int kBounds[] = {0, 2, 4, 8, kBytes};
  PLANQ_HD static Head head(const Fit* fits) {
    Head head{};
    head.scale = -peak_of<kUnits>(fits) / 32;
    head.d = half_of(head.scale);
    const float factor = inverse(head.scale);
    for (int j = 0; j < kUnits; ++j)
      head.scales[j] = static_cast<std::uint8_t>(whole(factor * fits[j].first, -32, 31) + 32);
    return head;
  }
  PLANQ_HD static Factors factors(const Head& head, int j) {
    return {inverse(times(head.scale, head.scales[j] - 32)), 0};
  }
  PLANQ_HD static int byte(const Head& head, Bytes codes, int at) {
    if (at < 2) return byte_of(head.d, at);
    if (at < 4) return joined<4, 1, 2, 4>(head.scales + 4 * (at - 2));
    if (at < 8) return joined<2, 1, 4>(head.scales + 2 * (at - 4));
    const int i = at - 8;
    return joined<2, 16, 4>(codes + 32 * (i / 16) + i % 16);
  }
};

// Where float32 rounds log2(x) to, rounded down: the exponent of x, but for the last few floats
// below some powers of two, whose logarithm is rounded up to the integer.
PLANQ_HD int floor_of_log2(float x) {
  const std::uint32_t bits = math::bit_cast<std::uint32_t>(x);
  const int next = static_cast<int>(bits >> 23) - 126;
  const int below = next > 0 ? next - 1 : -next;  // what the float before `next` is at least
  int exponent = -1;
  for (int i = 0; i < 7; ++i) exponent += below >> i != 0;
  // floor(ln 2 * 2^exponent)
  const int rounded_up = exponent < 0 ? 0 : 44 >> (6 - exponent);
  const int short_of_next = static_cast<int>(0x800000u - (bits & 0x7FFFFFu));
  return short_of_next <= rounded_up ? next : next - 1;
}

template <>
struct Quantizer<GgufType::Mxfp4> : OneUnit<GgufType::Mxfp4> {
  static constexpr int kBounds[] = {0, 1, kBytes};
  PLANQ_HD static Head head(const Fit* fits) {
    Head head{};
    head.d = exponent_of(fits->first);
    const std::uint8_t code = static_cast<std::uint8_t>(head.d);
    head.factors.first = Block<GgufType::Mxfp4>::scale(&code, 0);
    return head;
  }
  PLANQ_HD static int byte(const Head& head, Bytes codes, int at) {
    return at < 1 ? head.d : joined<2, 16, 4>(codes + at - 1);
  }

 private:
  PLANQ_HD static std::uint16_t exponent_of(float largest) {
    if (!math::is_finite(largest)) return 255;
    const int code = floor_of_log2(largest) + 125;
    return static_cast<std::uint16_t>(largest == 0 || code < 0 ? 0 : code);
  }
};

template <>
struct Quantizer<GgufType::Nvfp4> : ManyUnits<GgufType::Nvfp4, 16> {
  static constexpr int kBounds[] = {0, 4, kBytes};
  PLANQ_HD static Head head(const Fit* fits) {
    Head head{};
    for (int j = 0; j < kUnits; ++j) head.scales[j] = unsigned_e4m3(fits[j].first / 6);
    return head;
  }
  PLANQ_HD static Factors factors(const Head& head, int j) {
    return {Block<GgufType::Nvfp4>::scale(head.scales, 16 * j), 0};
  }
  PLANQ_HD static int byte(const Head& head, Bytes codes, int at) {
    if (at < 4) return head.scales[at];
    const int i = at - 4;
    return joined<2, 8, 4>(codes + 16 * (i / 8) + i % 8);
  }

 private:
  // Of x >= 0. Rounds by the bit behind the mantissa, so a tie goes up. ggml has nothing of the
  // largest exponent but the largest number.
  PLANQ_HD static std::uint8_t unsigned_e4m3(float x) {
    if (x < 0x1p-6f) {
      const int code = static_cast<int>(x * 512 + 0.5f);
      return static_cast<std::uint8_t>(code < 7 ? code : 7);
    }
    if (!(x < 256)) return 0x7E;
    const std::uint32_t bits = math::bit_cast<std::uint32_t>(x);
    const std::uint32_t code = (bits >> 20) + (bits >> 19 & 1) - 120 * 8;
    return static_cast<std::uint8_t>(code < 0x78 ? code : 0x7E);
  }
};

template <>
struct Quantizer<GgufType::Tq1_0> : OneScaleUnit<GgufType::Tq1_0, 1> {
  static constexpr int kBounds[] = {0, 32, 48, 52, kBytes};
  PLANQ_HD static int byte(const Head& head, Bytes codes, int at) {
    if (at < 32) return fraction(codes + at, 32, 5);
    if (at < 48) return fraction(codes + 160 + at - 32, 16, 5);
    return at < 52 ? fraction(codes + 240 + at - 48, 4, 4) : byte_of(head.d, at - 52);
  }

 private:
  // Five digits of base 3 as a fraction of 256, rounded up; those that are missing are 0.
  PLANQ_HD static int fraction(Bytes digits, int apart, int count) {
    int number = 0;
    for (int i = 0; i < 5; ++i) number = 3 * number + (i < count ? digits[i * apart] : 0);
    return (256 * number + 242) / 243;
  }
};

template <>
struct Quantizer<GgufType::Tq2_0> : OneScaleUnit<GgufType::Tq2_0, 1> {
  static constexpr int kBounds[] = {0, 64, kBytes};
  PLANQ_HD static int byte(const Head& head, Bytes codes, int at) {
    return at < 64 ? joined<4, 32, 2>(codes + 128 * (at / 32) + at % 32) : byte_of(head.d, at - 64);
  }
};

template <>
struct Quantizer<GgufType::Q1_0> : OneScaleUnit<GgufType::Q1_0, 128> {
  static constexpr int kBounds[] = {0, 2, kBytes};
  PLANQ_HD static int byte(const Head& head, Bytes codes, int at) {
    return at < 2 ? byte_of(head.d, at) : joined<8, 1, 1>(codes + 8 * (at - 2));
  }
};

template <>
struct Quantizer<GgufType::Q2_0> : OneScaleUnit<GgufType::Q2_0, 1> {
  static constexpr int kBounds[] = {0, 2, kBytes};
  PLANQ_HD static int byte(const Head& head, Bytes codes, int at) {
    return at < 2 ? byte_of(head.d, at) : joined<4, 1, 2>(codes + 4 * (at - 2));
  }
};

// Calls use(Block<type>{}) for a type that has a quantizer, which descriptors make sure of.
template <class Use>
auto by_quantizer(GgufType type, const Use& use) {
  return by_type(type, [&](auto block) -> decltype(use(Block<GgufType::Q4_0>{})) {
    if constexpr (has_grid(decltype(block)::kType))
      return {};
    else
      return use(block);
  });
}

}  // namespace planq::gguf
