// What elements of a row weigh, which of them a draw leaves, and how it is made: the arithmetic of
// docs/numerics/gather.md, for both backends.
#pragma once

#include <cstdint>
#include <limits>

#include "math/functions.h"
#include "math/philox.h"
#include "ops/gather/order.h"

namespace planq::sample {

using gather::order_of;

// Orders as numbers without sign.
PLANQ_HD std::uint32_t key_in(std::int32_t order) {
  return static_cast<std::uint32_t>(order) ^ 0x80000000u;
}
PLANQ_HD std::int32_t order_in(std::uint32_t key) {
  return static_cast<std::int32_t>(key ^ 0x80000000u);
}
// Whether an element of this order, the largest of a row, makes probabilities.
PLANQ_HD bool has_weights(std::int32_t largest) {
  return largest != gather::kNanOrder && largest > -0x7F800000;
}

// So many weights of 2^40 have a sum of 2^63, which 64 bits hold.
inline constexpr std::int64_t kMostElements = std::int64_t{1} << 23;
// What an element weighs that equals the largest one.
inline constexpr float kUnit = 0x1p40f;

// What a row is drawn by.
struct Settings {
  float temperature, top_p, min_p;
  std::int32_t top_k;
  std::uint64_t seed, position;

  // No comparison holds for a NaN.
  PLANQ_HD bool are_valid() const {
    return temperature >= 0 && temperature <= math::largest_finite<float>() && top_p >= 0 &&
           top_p <= 1 && min_p >= 0 && min_p <= 1;
  }
  PLANQ_HD bool is_greedy() const { return temperature == 0; }
  // 1 / temperature. It is finite, so that its product with 0 is 0.
  PLANQ_HD float slope() const {
    return math::detail::at_most(math::detail::quotient_of(1.0f, temperature),
                                 math::largest_finite<float>());
  }
  // Whether the first top_k of so many elements are fewer.
  PLANQ_HD bool limits(std::int64_t count) const { return top_k > 0 && top_k < count; }
};

// Elements next to the largest one of their row.
struct Weigher {
  float largest, slope;

  // From 0 to 1, which the largest element has, infinity too. No element is a NaN.
  PLANQ_HD float probability(float x) const {
    const float below = math::detail::select(x == largest, 0.0f, x - largest);
    return math::exp_nonpositive(below * slope);
  }
  PLANQ_HD std::uint64_t weight(float x) const {
    return static_cast<std::uint64_t>(probability(x) * kUnit);
  }
  // An order from which on elements weigh most of what all weigh, in rows as they are usually:
  // e^-10 of the largest one. Results do not depend on it.
  PLANQ_HD std::int32_t near() const { return order_of(largest - 10 / slope); }
};

// The first elements of the order, by falling elements and, of equal ones, by rising indices: those
// above `order`, and those equal to it up to index `last`.
struct Cut {
  std::int32_t order, last;

  PLANQ_HD bool has(std::int32_t own, std::int32_t index) const {
    return (own > order) | ((own == order) & (index <= last));
  }
};
PLANQ_HD Cut whole_row() {
  return {std::numeric_limits<std::int32_t>::min(), std::numeric_limits<std::int32_t>::max()};
}

// What elements weigh for a draw: those of a cut that min_p leaves.
struct Drawer {
  Weigher weigher;
  Cut cut;
  float min_p;

  PLANQ_HD std::uint64_t weight(float x, std::int32_t order, std::int32_t index) const {
    if (!cut.has(order, index)) return 0;
    const float p = weigher.probability(x);
    return p >= min_p ? static_cast<std::uint64_t>(p * kUnit) : 0;
  }
};

struct Product {
  std::uint64_t high, low;
};
PLANQ_HD Product product_of(std::uint64_t a, std::uint64_t b) {
  const std::uint64_t a0 = a & 0xFFFFFFFFu, a1 = a >> 32, b0 = b & 0xFFFFFFFFu, b1 = b >> 32;
  const std::uint64_t cross = a1 * b0 + (a0 * b0 >> 32), other = a0 * b1 + (cross & 0xFFFFFFFFu);
  return {a1 * b1 + (cross >> 32) + (other >> 32), a * b};
}

// The least integer that is not below share * sum, and 1 at least. `share` is from 0 to 1, a
// multiple m of a power of two; `sum` is at most 2^63.
PLANQ_HD std::uint64_t part_of(std::uint64_t sum, float share) {
  const std::uint32_t bits = math::magnitude_bits(share), exponent = bits >> 23;
  const std::uint32_t fraction = bits & 0x7FFFFFu;
  const std::uint64_t m = exponent > 0 ? fraction | 0x800000u : fraction;
  const std::uint32_t by = 150 - (exponent > 0 ? exponent : 1);  // share = m 2^-by; by is 23 to 149
  const Product product = product_of(m, sum);
  std::uint64_t part = 0;
  bool is_more = false;  // than part
  if (by < 64) {
    part = product.high << (64 - by) | product.low >> by;
    is_more = (product.low & ((std::uint64_t{1} << by) - 1)) != 0;
  } else {
    // The high word has less than 24 bits.
    const std::uint32_t rest = by - 64 < 63 ? by - 64 : 63;
    part = product.high >> rest;
    is_more = product.low != 0 || (product.high & ((std::uint64_t{1} << rest) - 1)) != 0;
  }
  part += is_more ? 1 : 0;
  return part > 0 ? part : 1;
}

// A number below `sum`: the high half of its product with 64 random bits.
PLANQ_HD std::uint64_t drawn(const Settings& settings, std::uint64_t sum) {
  const math::PhiloxWords words = math::philox(math::PhiloxKeys(settings.seed), settings.position);
  return product_of(std::uint64_t{words.word[1]} << 32 | words.word[0], sum).high;
}

}  // namespace planq::sample
