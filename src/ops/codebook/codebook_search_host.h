// Search tables that find the codes of quotients, for the loops of codebook_loops.h and of the
// optimizer family. Those of the dynamic map are compiled in; others are built at each launch, on
// the stack.
#pragma once

#include <bit>
#include <cstdint>

#include "ops/codebook/arithmetic.h"

namespace planq::host {

using math::ByteTable;
using math::NibbleTable;

// The 15 thresholds of 4-bit codes as a search tree: node n has the children 2n and 2n + 1, for
// quotients up to its threshold and above, and the leaves 16 to 31 are the ranks.
struct NibbleSearch {
  const NibbleTable* table;
  alignas(64) float node[16];  // node 0 is not used
  alignas(64) std::int32_t code[16];

  explicit NibbleSearch(const NibbleTable& of) : table(&of) {
    node[0] = 0;
    for (int first = 1, step = 16; first < 16; first *= 2, step /= 2)
      for (int i = 0; i < first; ++i) node[first + i] = of.threshold[step / 2 + i * step - 1];
    for (int rank = 0; rank < 16; ++rank) code[rank] = of.code[rank];
  }
};

// Buckets of quotients: the leading bits of a quotient (sign, exponent and the first bits of the
// mantissa) are the number of its bucket. If a bucket holds at most one threshold, its entry is
//
//     rank * 2^shift + (2^shift - 1 - the threshold's other bits),
//
// Adding the remaining bits of a quotient to the entry carries into the rank exactly if they are
// larger than the threshold's. Magnitudes below `lowest` share a bucket, and so do those from
// `highest` on. Buckets with several thresholds are marked: see ByteSearch.
struct Buckets {
  static constexpr std::uint32_t kMarked = 1u << 31;
  static constexpr int kLargestHalf = 24 * 128 + 2;

  std::int32_t lowest, highest, base, shift, half;
  std::uint32_t entry[2 * kLargestHalf];

  // `mantissa` is the number of mantissa bits in a bucket's number. The exponents are that of the
  // largest threshold, and as many below it as fit into the table.
  constexpr Buckets(const ByteTable& table, int mantissa) : entry{} {
    shift = 23 - mantissa;
    set_range(table);
    const std::int32_t width = std::int32_t{1} << shift;
    int rank = 0;
    for (std::int32_t bucket = -half; bucket < half; ++bucket) {
      const int before = rank;
      std::uint32_t carries = 0;  // makes other bits above those of the only threshold carry
      bool clamped = false;
      for (; rank < table.ranks - 1; ++rank) {
        // Both zeros are the same threshold, and +0 is not above it.
        const float threshold = table.threshold[rank] == 0 ? 0.0f : table.threshold[rank];
        if (place(threshold) >> shift > bucket) break;
        carries = static_cast<std::uint32_t>(width - 1 - (place(threshold) & (width - 1)));
        clamped = clamped || is_clamped(threshold);
      }
      const bool marked = clamped || rank - before > 1;
      entry[bucket + half] =
          (static_cast<std::uint32_t>(before) << shift) + carries + (marked ? kMarked : 0);
    }
  }

  // The bits of y, clamped to the buckets, as a signed integer: the bucket's number is above
  // `shift`.
  PLANQ_HD constexpr std::int32_t place(float y) const {
    const std::int32_t bits = __builtin_bit_cast(std::int32_t, y);
    const std::int32_t magnitude = bits & 0x7FFFFFFF;
    const std::int32_t inside = magnitude < lowest    ? lowest
                                : magnitude > highest ? highest
                                                      : magnitude;
    return (inside - base) ^ (bits >> 31);
  }
  PLANQ_HD constexpr std::uint32_t entry_of(float y) const {
    return entry[half + (place(y) >> shift)];
  }

 private:
  constexpr bool is_clamped(float y) const {
    const std::int32_t magnitude = std::bit_cast<std::int32_t>(y) & 0x7FFFFFFF;
    return magnitude <= lowest || magnitude > highest;
  }

  constexpr void set_range(const ByteTable& table) {
    std::int32_t smallest = 0x7F7FFFFF, largest = 0;
    for (int rank = 0; rank < table.ranks - 1; ++rank) {
      const std::int32_t magnitude =
          std::bit_cast<std::int32_t>(table.threshold[rank]) & 0x7FFFFFFF;
      if (magnitude == 0 || magnitude > 0x7F7FFFFF) continue;
      smallest = magnitude < smallest ? magnitude : smallest;
      largest = magnitude > largest ? magnitude : largest;
    }
    const std::int32_t width = std::int32_t{1} << shift;
    highest = (largest / width + 1) * width;
    const std::int32_t room = highest - (kLargestHalf - 2) * width;
    std::int32_t first = smallest / width * width;
    if (first < room) first = room;
    if (first < width) first = width;
    if (first > highest) first = highest;
    lowest = first - 1;
    base = first - width;
    half = (highest - base) / width + 1;
  }
};

// The search for 8-bit codes: by buckets, or by bisection if there are none or a bucket is marked.
struct ByteSearch {
  const ByteTable* table;
  const Buckets* buckets;
};

inline constexpr int kDynamicMantissa = 6, kGivenMantissa = 7;
// The buckets of the dynamic map, each with at most one threshold.
inline constexpr Buckets kDynamicBuckets{math::kDynamicTable, kDynamicMantissa};
static_assert([] {
  for (const std::uint32_t entry : kDynamicBuckets.entry)
    if (entry & Buckets::kMarked) return false;
  return true;
}());

}  // namespace planq::host
