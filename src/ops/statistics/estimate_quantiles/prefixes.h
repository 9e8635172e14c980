// The prefixes that wanted elements have in a pass, numbered in ascending order, and a table that
// finds the number of a prefix or, mostly in one step, that it has none.
#pragma once

#include "ops/statistics/estimate_quantiles/desc.h"

namespace planq::estimate_quantiles {

template <class Key>
struct Prefixes {
  // Eight places for every prefix that there can be.
  static constexpr int kPlaceBits = 11, kPlaces = 1 << kPlaceBits;
  static constexpr std::uint32_t kNone = ~std::uint32_t{0};

  std::uint32_t places[kPlaces];  // numbers, or kNone
  Key keys[kMaxQuantiles];        // by number

  // The hash of a prefix: where the search for it begins. Multiplicative hashing by 2^32 or 2^64
  // over the golden ratio, which sends neighbours far apart.
  PLANQ_HD static std::uint32_t first_place(Key prefix) {
    constexpr Key kMultiplier =
        static_cast<Key>(sizeof(Key) == 8 ? 0x9E3779B97F4A7C15u : 0x9E3779B9u);
    return static_cast<std::uint32_t>(prefix * kMultiplier >> (sizeof(Key) * 8 - kPlaceBits));
  }
  PLANQ_HD static std::uint32_t next_place(std::uint32_t place) { return (place + 1) % kPlaces; }

  PLANQ_HD std::uint32_t find(Key prefix) const {
    std::uint32_t place = first_place(prefix);
    for (;; place = next_place(place)) {
      const std::uint32_t number = places[place];
      if (number == kNone || keys[number] == prefix) return number;
    }
  }
};

}  // namespace planq::estimate_quantiles
