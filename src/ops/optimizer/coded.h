// Optimizer states as codes of a byte, for host and device: codebook's encoding, with one addition
// for states that have a sign.
#pragma once

#include <cstdint>

#include "ops/codebook/arithmetic.h"

namespace planq::optimizer {

// The larger of two magnitudes; a NaN is larger than all others.
PLANQ_HD float larger_magnitude(float a, float b) {
  const std::uint32_t first = math::magnitude_bits(a), second = math::magnitude_bits(b);
  return math::bit_cast<float>(first > second ? first : second);
}

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
