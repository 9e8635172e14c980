// Which codes the kernels of sm90/groups_few_rows.cuh and sm90/groups_tiles.cuh make numbers of.
#pragma once

#include <algorithm>

#include "cuda/divider.cuh"
#include "ops/linear/weight_only/codes.h"

namespace planq::linear::sm90::groups {

// Whether there are kernels for a kind of codes. Those of 8 bits have scales of channels or of long
// groups, floats of 8 bits also those of 32; runs of one step are those of a table.
inline bool has_kernels(const CodeKind& kind) {
  constexpr int kShort = 32;
  if (kind.has_codebook) return true;
  if (is_four_bit(kind.dtype)) return kind.run >= kShort;
  return kind.run == math::kMostRunTerms || (is_fp8(kind.dtype) && kind.run == kShort);
}

// Whether 32 bits without a sign can number the statistics.
inline bool has_statistics(const WeightCodes& codes) {
  const std::int64_t least = std::min(codes.scales.pitch, codes.zero_point_row);
  const std::int64_t most = std::max(codes.scales.pitch, codes.zero_point_row);
  return least >= 0 && codes.scales.stored.nested_block_size <= cuda::kMaxIndex &&
         static_cast<double>(codes.rows) * static_cast<double>(most) <= cuda::kMaxIndex;
}

}  // namespace planq::linear::sm90::groups
