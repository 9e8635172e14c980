// Which kernel of sm90/float_tiles.cuh or sm90/float_few_rows.cuh a floating product takes. Every
// choice gives the same bits.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "ops/linear/sm90/heuristics.h"

namespace planq::linear::sm90 {

struct FloatProblem : Problem {
  int bytes;             // of a number
  bool joins_by_scales;  // slices have scales of their own
  bool input_transposed;
};

struct FloatChoice {
  bool few_rows = false;
  // Of a few_rows one: tokens, and blocks at a time on a multiprocessor, which share its memory.
  int tokens = 0, resident = 1;
  // Of tiles: those of twice the rows.
  bool tall = false;
};

// Tokens that few_rows kernels are wide, and the most blocks of 64 columns at a time: more have
// rings of too few stages.
struct FloatWidth {
  int tokens, resident;
};
inline constexpr std::array<FloatWidth, 4> kFloatWidths = {{{16, 4}, {32, 4}, {64, 2}, {128, 1}}};
constexpr int most_resident(int tokens) {
  for (const FloatWidth& width : kFloatWidths)
    if (width.tokens == tokens) return width.resident;
  return 1;
}

// The least width where the input is transposed: a box of it is 64 tokens.
inline constexpr int kTransposedWidth = 64;

// Up to as many tokens, products whose slices have scales are few_rows: of more, tiles were faster.
inline constexpr std::int64_t kMostScaledTokens = 32;

// Numbers of a weight that is small: many products of up to 64 tokens with such weights were faster
// on tiles, though half of their rows are empty.
inline constexpr std::int64_t kSmallWeight = 1 << 19;

// What a tall tile takes, as measured on one H200, where a tile takes 1.
inline constexpr double kTallCost = 1.9;

namespace detail {

inline bool prefers_tall(const FloatProblem& p) {
  constexpr std::int64_t kRows = 128, kColumns = 128;
  if (p.bytes != 2 || p.m <= kRows) return false;
  const auto rounds = [&](std::int64_t rows) {
    const std::int64_t tiles = parts(p.m, rows) * parts(p.n, kColumns) * p.batches;
    return static_cast<double>(parts(tiles, p.multiprocessors));
  };
  return kTallCost * rounds(2 * kRows) < rounds(kRows);
}

// `each`: blocks of 64 tokens that a multiprocessor has, of which two run at a time.
inline bool prefers_tiles(const FloatProblem& p, std::int64_t each) {
  return p.bytes == 2 && p.n > 64 && p.n * p.k <= kSmallWeight && each > 4;
}

}  // namespace detail

inline FloatChoice choose_floats(const FloatProblem& p) {
  constexpr std::int64_t kColumns = 64;
  for (const FloatWidth& width : kFloatWidths) {
    if (p.joins_by_scales && width.tokens > kMostScaledTokens) break;
    if (p.input_transposed && width.tokens < kTransposedWidth) continue;
    const bool widest = width.tokens == kFloatWidths.back().tokens;
    if (p.m > width.tokens && !(widest && p.bytes == 2)) continue;
    // Where all blocks run at a time, each has the largest ring for that.
    const std::int64_t blocks =
        detail::parts(p.m, width.tokens) * detail::parts(p.n, kColumns) * p.batches;
    const std::int64_t each = detail::parts(blocks, p.multiprocessors);
    // The widest is for products whose tiles would leave half of the multiprocessors idle; where
    // its blocks took turns, tiles have as many rounds of twice the columns.
    if (widest && each > width.resident) break;
    if (width.tokens == 64 && detail::prefers_tiles(p, each)) break;
    return {true, width.tokens, static_cast<int>(std::min<std::int64_t>(each, width.resident)),
            false};
  }
  FloatChoice tiles;
  tiles.tall = detail::prefers_tall(p);
  return tiles;
}

}  // namespace planq::linear::sm90
