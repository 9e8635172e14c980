// Codes without branches, for loops that compilers vectorise.
#pragma once

#include "math/formats.h"

namespace planq::host {

using math::bit_cast;
using math::Ieee;

// Adding 1.5 * 2^fraction leaves the integer nearest to `bounded` in the low bits, ties to even.
template <class C>
inline constexpr C kRoundingShift = sizeof(C) == 4 ? C(12582912.0) : C(6755399441055744.0);
struct IntegerCode {
  template <class C>
  PLANQ_HD static typename Ieee<C>::Bits of(C bounded) {
    return bit_cast<typename Ieee<C>::Bits>(bounded + kRoundingShift<C>);
  }
};

// SmallFloat::encode without branches, for finite values that the format can hold. Adding a power
// of two whose unit is that of the format in the binade of the value rounds it, ties to even; below
// the smallest normal exponent the unit stays. The bits by which the sum exceeds that power are the
// significand in the format, with the implicit one, which adds 1 to the exponent field.
template <int kBias, int kMantissa>
struct SmallCode {
  template <class C>
  PLANQ_HD static typename Ieee<C>::Bits of(C bounded) {
    using Bits = typename Ieee<C>::Bits;
    constexpr int kFraction = sizeof(C) == 4 ? 23 : 52;
    constexpr int kSourceBias = sizeof(C) == 4 ? 127 : 1023;
    constexpr int kDrop = kFraction - kMantissa;
    constexpr Bits kSmallest = static_cast<Bits>(1 - kBias + kSourceBias) << kFraction;
    const Bits bits = bit_cast<Bits>(bounded);
    const Bits exponent = bits & Ieee<C>::kInfinity;
    const Bits binade = exponent > kSmallest ? exponent : kSmallest;
    const Bits shift = binade + (static_cast<Bits>(kDrop) << kFraction);
    const Bits sum = bit_cast<Bits>(bit_cast<C>(bits & ~Ieee<C>::kSign) + bit_cast<C>(shift));
    const Bits code = sum - shift + ((binade - kSmallest) >> kDrop);
    // The sign is joined at the top of the word and then shifted down: otherwise compilers see that
    // only 8 bits are used, and do all steps above in slower, narrower lanes.
    constexpr int kTop = sizeof(C) * 8 - 8;
    return (code << kTop | (bits & Ieee<C>::kSign)) >> kTop;
  }
};
using E4M3Code = SmallCode<7, 3>;
using E5M2Code = SmallCode<15, 2>;

// E2M1Codec::encode of a float that is no NaN, whatever its size. The numbers of the format are a
// half apart up to 2, one up to 4 and two beyond, so the code of a magnitude m is the least of 2 m,
// m + 2, m / 2 + 4 and 7, each rounded to an integer, ties to even: even numbers have even codes.
struct E2M1Code {
  PLANQ_HD static std::uint32_t of(float x) {
    constexpr float kShift = kRoundingShift<float>;
    const std::uint32_t sign = bit_cast<std::uint32_t>(x) & Ieee<float>::kSign;
    const float m = bit_cast<float>(math::magnitude_bits(x));
    const std::int32_t halves = bit_cast<std::int32_t>(m + m + kShift);
    const std::int32_t ones = bit_cast<std::int32_t>(m + (kShift + 2.0f));
    const std::int32_t twos = bit_cast<std::int32_t>(m * 0.5f + (kShift + 4.0f));
    // Floats above 0 have the order of their bits.
    const std::int32_t fine = halves < ones ? halves : ones;
    const std::int32_t coarse = twos < kLargest ? twos : kLargest;
    const std::int32_t least = fine < coarse ? fine : coarse;
    return (static_cast<std::uint32_t>(least) << 28 | sign) >> 28;
  }

 private:
  static constexpr std::int32_t kLargest = 0x4B400007;  // the bits of kShift + 7
};

}  // namespace planq::host
