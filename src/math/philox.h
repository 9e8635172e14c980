// Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3"): random words as a
// function of a key and a counter, so that a random number depends on a seed and an element's index
// alone.
#pragma once

#include "math/ieee.h"

namespace planq::math {

struct PhiloxWords {
  std::uint32_t word[4];
};

// The keys of the ten rounds.
struct PhiloxKeys {
  std::uint32_t low[10], high[10];

  PhiloxKeys() = default;
  PLANQ_HD explicit PhiloxKeys(std::uint64_t key) {
    for (std::uint32_t round = 0; round < 10; ++round) {
      low[round] = static_cast<std::uint32_t>(key) + round * 0x9E3779B9u;
      high[round] = static_cast<std::uint32_t>(key >> 32) + round * 0xBB67AE85u;
    }
  }
};

// Four words for one value of the counter, of which `third` and `fourth` are the upper words.
PLANQ_HD PhiloxWords philox(const PhiloxKeys& keys, std::uint64_t counter, std::uint32_t third = 0,
                            std::uint32_t fourth = 0) {
  constexpr std::uint32_t kFirst = 0xD2511F53u, kSecond = 0xCD9E8D57u;
  std::uint32_t c0 = static_cast<std::uint32_t>(counter);
  std::uint32_t c1 = static_cast<std::uint32_t>(counter >> 32);
  std::uint32_t c2 = third, c3 = fourth;
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t first = std::uint64_t{kFirst} * c0, second = std::uint64_t{kSecond} * c2;
    c0 = static_cast<std::uint32_t>(second >> 32) ^ c1 ^ keys.low[round];
    c1 = static_cast<std::uint32_t>(second);
    c2 = static_cast<std::uint32_t>(first >> 32) ^ c3 ^ keys.high[round];
    c3 = static_cast<std::uint32_t>(first);
  }
  return {{c0, c1, c2, c3}};
}

// The word of element `index` among the four that it shares with its neighbours.
PLANQ_HD std::uint32_t word_of(const PhiloxWords& words, std::uint64_t index) {
  const std::uint32_t even = index & 2 ? words.word[2] : words.word[0];
  const std::uint32_t odd = index & 2 ? words.word[3] : words.word[1];
  return index & 1 ? odd : even;
}

// A multiple of 2^-24 in [0, 1) from the upper bits of a word.
template <class C>
PLANQ_HD C uniform_of(std::uint32_t word) {
  return static_cast<C>(word >> 8) * static_cast<C>(0x1p-24);
}

// The random number of element `index` of a tensor.
template <class C>
PLANQ_HD C element_uniform(std::uint64_t seed, std::uint64_t offset, std::uint64_t index) {
  return uniform_of<C>(word_of(philox(PhiloxKeys(seed), offset + index / 4), index));
}

}  // namespace planq::math
