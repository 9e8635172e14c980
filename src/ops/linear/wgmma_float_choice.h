// Which kernel of wgmma_float.cuh or wgmma_float_streamed.cuh a floating product takes. Every
// choice gives the same bits.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "ops/linear/wgmma_choice.h"

namespace planq::linear::wgmma {

struct FloatChoice {
  bool streamed = false;
  // Of a streamed one: tokens, and blocks at a time on a multiprocessor, which share its memory.
  int tokens = 0, resident = 1;
};

// Tokens that streamed kernels are wide, and blocks of 64 columns that registers allow at a time.
struct FloatWidth {
  int tokens, resident;
};
inline constexpr std::array<FloatWidth, 4> kFloatWidths = {{{16, 4}, {32, 4}, {64, 2}, {128, 1}}};

inline FloatChoice choose_floats(const Problem& p) {
  constexpr std::int64_t kColumns = 64;
  for (const FloatWidth& width : kFloatWidths) {
    if (p.m > width.tokens) continue;
    // Where all blocks run at a time, each has the largest ring for that.
    const std::int64_t blocks = detail::parts(p.n, kColumns) * p.batches;
    const std::int64_t each = detail::parts(blocks, p.multiprocessors);
    // The widest is for weights whose tiles would leave half of the multiprocessors idle; where its
    // blocks took turns, tiles have as many rounds of twice the columns.
    if (width.tokens == kFloatWidths.back().tokens && each > width.resident) break;
    return {true, width.tokens, static_cast<int>(std::min<std::int64_t>(each, width.resident))};
  }
  return {};
}

}  // namespace planq::linear::wgmma
