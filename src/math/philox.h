// Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3"): random words as a
// function of a key and a counter, so that a draw depends on a seed and an element's index alone.
#pragma once

#include "math/round.h"

namespace planq::math {

struct PhiloxWords {
  std::uint32_t word[4];
};

PLANQ_HD std::uint32_t high_product(std::uint32_t a, std::uint32_t b) {
#if defined(__CUDA_ARCH__)
  return __umulhi(a, b);
#else
  return static_cast<std::uint32_t>(std::uint64_t{a} * b >> 32);
#endif
}

// Four words for one value of the counter, whose upper 64 bits are zero.
PLANQ_HD PhiloxWords philox(std::uint64_t key, std::uint64_t counter) {
  constexpr std::uint32_t kFirst = 0xD2511F53u, kSecond = 0xCD9E8D57u;
  constexpr std::uint32_t kStepLow = 0x9E3779B9u, kStepHigh = 0xBB67AE85u;
  std::uint32_t key_low = static_cast<std::uint32_t>(key);
  std::uint32_t key_high = static_cast<std::uint32_t>(key >> 32);
  std::uint32_t c0 = static_cast<std::uint32_t>(counter);
  std::uint32_t c1 = static_cast<std::uint32_t>(counter >> 32);
  std::uint32_t c2 = 0, c3 = 0;
  for (int round = 0; round < 10; ++round) {
    const std::uint32_t high = high_product(kFirst, c0), low = kFirst * c0;
    const std::uint32_t other_high = high_product(kSecond, c2), other_low = kSecond * c2;
    c0 = other_high ^ c1 ^ key_low;
    c1 = other_low;
    c2 = high ^ c3 ^ key_high;
    c3 = low;
    key_low += kStepLow;
    key_high += kStepHigh;
  }
  return {{c0, c1, c2, c3}};
}

// A multiple of 2^-24 in [0, 1) from the upper bits of a word.
template <class C>
PLANQ_HD C unit_draw(std::uint32_t word) {
  return static_cast<C>(word >> 8) * static_cast<C>(0x1p-24);
}

// The draw of element `index` of a tensor.
template <class C>
PLANQ_HD C element_draw(std::uint64_t seed, std::uint64_t offset, std::uint64_t index) {
  const PhiloxWords words = philox(seed, offset + index / 4);
  const std::uint32_t even = index & 2 ? words.word[2] : words.word[0];
  const std::uint32_t odd = index & 2 ? words.word[3] : words.word[1];
  return unit_draw<C>(index & 1 ? odd : even);
}

}  // namespace planq::math
