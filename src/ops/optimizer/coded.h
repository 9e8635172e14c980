// Optimizer states as codes of a byte, for host and device: codebook's encoding, with one addition
// for states that have a sign.
#pragma once

#include <cstdint>

#include "ops/codebook/arithmetic.h"
#include "ops/codebook/codebook_search_host.h"

namespace planq::optimizer {

// The larger of two magnitudes; a NaN is larger than all others.
PLANQ_HD float larger_magnitude(float a, float b) {
  const std::uint32_t first = math::magnitude_bits(a), second = math::magnitude_bits(b);
  return math::bit_cast<float>(first > second ? first : second);
}

// The host's search of the compiled-in unsigned map; that of the signed one is codebook's.
inline constexpr host::Buckets kUnsignedBuckets{math::kUnsignedDynamicTable, 7};
// Every threshold of the unsigned map, and the number above it, is in a bucket of its own. What is
// not above 0 has the rank 0.
static_assert([] {
  const math::ByteTable& table = math::kUnsignedDynamicTable;
  const std::uint32_t rest = (1u << kUnsignedBuckets.shift) - 1;
  for (int i = 0; i + 1 < table.ranks; ++i) {
    for (std::uint32_t above = 0; above < 2; ++above) {
      const float y =
          std::bit_cast<float>(std::bit_cast<std::uint32_t>(table.threshold[i]) + above);
      const auto place = static_cast<std::uint32_t>(kUnsignedBuckets.place(y));
      const std::uint32_t entry = kUnsignedBuckets.entry_of(y);
      const auto found = static_cast<int>((entry + (place & rest)) >> kUnsignedBuckets.shift);
      if ((entry & host::Buckets::kMarked) || found != math::rank_of(y, table)) return false;
    }
  }
  return table.threshold[0] > 0;
}());

// A state below 0 that is coded as 0 would not move a parameter any more, and would not say where
// it came from: it takes the code below. Positive ones may: so does bitsandbytes.
PLANQ_HD std::uint8_t coded_state(float x, const math::BlockDivision<float>& block,
                                  const math::ByteTable& table, bool is_signed) {
  if (block.empty) return table.zero;
  const float y = math::number_of(math::divided(x, block));
  const int rank = math::rank_of(y, table);
  const std::uint8_t code = table.code_at(rank);
  const bool repaired = is_signed && x < 0 && code == table.zero && rank > 0;
  return repaired ? table.code_at(rank - 1) : code;
}

}  // namespace planq::optimizer
