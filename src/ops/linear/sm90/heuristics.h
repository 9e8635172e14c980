// Which kernel of sm_90 computes a gemm. The time of each is estimated from measurements, and the
// least one wins. Every choice gives the same bits. A token is a row of the input.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "ops/linear/sm90/bodies.h"

namespace planq::linear::sm90 {

// --- 8-bit codes: int8_tiles.cuh or int8_few_rows.cuh --------------------------------------------

struct Choice {
  bool few_rows = false;
  // Of a kernel for few rows: its tokens, the blocks that share a multiprocessor, and the blocks of
  // a cluster, which split k.
  int width = 128, resident = 1, cluster = 1;

  Body body() const { return few_rows ? Body::FewRows : Body::Tiles; }
};

struct Problem {
  std::int64_t m, n, k, batches;
  int multiprocessors;
};

inline constexpr int kBand = 16;  // rows of 128-row tiles in a band of the scheduler

namespace detail {

// Three sizes are 128: bytes of a k block, rows and columns of a tile, and columns of a few-rows
// block.
inline constexpr std::int64_t kKBlock = 128;

inline std::int64_t parts(std::int64_t whole, std::int64_t part) {
  return (whole + part - 1) / part;
}

// Estimates in microseconds, measured on one H200. `k_block`: the time of a k block if every
// multiprocessor is busy. `tile`: what a tile takes beside its k blocks. `split`: what each block
// of a cluster adds.
struct Cost {
  Choice choice;
  double k_block, tile, split;
};
inline constexpr double kLaunch = 4, kBytesPerMicrosecond = 4.2e6;

inline constexpr std::array<Cost, 6> kCosts = {{
    {{false, 128, 1, 1}, 0.36, 0.5, 0},
    {{true, 16, 2, 1}, 0.28, 0, 0.73},
    {{true, 32, 2, 1}, 0.30, 0, 1.2},
    {{true, 64, 2, 1}, 0.33, 0, 2.2},
    {{true, 128, 2, 1}, 0.55, 0, 3.4},
    {{true, 128, 1, 1}, 0.34, 0, 2.6},
}};

inline double microseconds(const Problem& p, const Cost& cost, int cluster) {
  const Choice& c = cost.choice;
  const int splits = c.few_rows ? cluster : 1;
  const std::int64_t clusters = parts(p.m, c.width) * parts(p.n, kKBlock) * p.batches;
  const std::int64_t slots = std::max(p.multiprocessors * c.resident / cluster, 1);
  const auto rounds = static_cast<double>(parts(clusters, slots));
  const double k_blocks = static_cast<double>(parts(p.k, kKBlock)) / splits;
  const double bytes = static_cast<double>(p.batches * (p.n + p.m) * p.k);
  const double least = bytes / kBytesPerMicrosecond;
  return kLaunch + std::max(rounds * (k_blocks * cost.k_block + cost.tile), least) +
         splits * cost.split;
}

// With up to so many tokens, the bytes of the weight decide, and tiles are not considered.
inline constexpr std::int64_t kFewTokens = 64;

// Few-rows kernels are considered if their width is the least that holds all tokens.
inline bool fits_tokens(int width, std::int64_t tokens) {
  return width >= tokens && (width == 16 || width < 2 * tokens);
}

// For more tokens than one few-rows kernel holds, tiles are better.
inline bool considers(const Choice& choice, std::int64_t tokens, Body body) {
  constexpr std::int64_t kMostTokens = 128;
  if (body == Body::FewRows)
    return choice.few_rows && fits_tokens(choice.width, std::min(tokens, kMostTokens));
  if (body == Body::Tiles) return !choice.few_rows;
  return choice.few_rows ? tokens <= kMostTokens && fits_tokens(choice.width, tokens)
                         : tokens > kFewTokens;
}

}  // namespace detail

inline Choice choose(const Problem& p, Body body = Body::Fastest) {
  Choice best;
  double least = 0;
  for (const detail::Cost& cost : detail::kCosts) {
    const Choice& c = cost.choice;
    if (!detail::considers(c, p.m, body)) continue;
    for (int cluster = c.cluster; cluster <= (c.few_rows ? 8 : c.cluster); cluster *= 2) {
      const double time = detail::microseconds(p, cost, cluster);
      if (least > 0 && time >= least) continue;
      least = time;
      best = c;
      best.cluster = cluster;
    }
  }
  return best;
}

// --- Floating numbers: float_tiles.cuh or float_few_rows.cuh ------------------------------------

struct FloatProblem : Problem {
  int bytes;             // of a number in an operand
  bool joins_by_scales;  // slices have scales of blocks
  bool input_transposed;
};

struct FloatChoice {
  bool few_rows = false;
  // Of a kernel for few rows: its tokens, and the blocks that share a multiprocessor and its shared
  // memory.
  int tokens = 0, resident = 1;
  // Of tiles: whether they have 256 rows instead of 128.
  bool tall = false;

  Body body() const { return few_rows ? Body::FewRows : tall ? Body::TallTiles : Body::Tiles; }
};

// The tokens of each few-rows kernel, and the most blocks on a multiprocessor. More blocks would
// have too few stages each.
struct FloatWidth {
  int tokens, resident;
};
inline constexpr std::array<FloatWidth, 4> kFloatWidths = {{{16, 4}, {32, 4}, {64, 2}, {128, 1}}};
constexpr int most_resident(int tokens) {
  for (const FloatWidth& width : kFloatWidths)
    if (width.tokens == tokens) return width.resident;
  return 1;
}

// The least width for transposed inputs: a TMA box of these is 64 tokens.
inline constexpr int kTransposedWidth = 64;

// With scales of blocks, few-rows kernels take up to so many tokens. With more, tiles were faster.
inline constexpr std::int64_t kMostScaledTokens = 32;

// A weight with up to so many numbers is small. Batches of many gemms with up to 64 tokens and such
// weights were faster on tiles, although half of the tiles' rows are empty.
inline constexpr std::int64_t kSmallWeight = 1 << 19;

// The time of a tall tile, measured on one H200, if that of another tile is 1.
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

// `each`: blocks of 64 tokens for each multiprocessor, which runs two of them at a time.
inline bool prefers_tiles(const FloatProblem& p, std::int64_t each) {
  return p.bytes == 2 && p.n > 64 && p.n * p.k <= kSmallWeight && each > 4;
}

// Whether there is a few-rows kernel of this width.
inline bool has_width(const FloatProblem& p, int tokens) {
  return !(p.joins_by_scales && tokens > kMostScaledTokens) &&
         !(p.input_transposed && tokens < kTransposedWidth);
}
// Blocks of a few-rows kernel for each multiprocessor.
inline std::int64_t blocks_each(const FloatProblem& p, int tokens) {
  constexpr std::int64_t kColumns = 64;
  return parts(parts(p.m, tokens) * parts(p.n, kColumns) * p.batches, p.multiprocessors);
}
inline FloatChoice few_rows_of(const FloatWidth& width, std::int64_t each) {
  return {true, width.tokens, static_cast<int>(std::min<std::int64_t>(each, width.resident)),
          false};
}

// The least width that holds all tokens, or the largest.
inline FloatChoice pinned_few_rows(const FloatProblem& p) {
  FloatChoice best;
  for (const FloatWidth& width : kFloatWidths) {
    if (!has_width(p, width.tokens)) continue;
    best = few_rows_of(width, blocks_each(p, width.tokens));
    if (p.m <= width.tokens) break;
  }
  return best;
}

}  // namespace detail

inline FloatChoice choose_floats(const FloatProblem& p, Body body = Body::Fastest) {
  if (body == Body::FewRows) return detail::pinned_few_rows(p);
  if (body != Body::Fastest) return {.tall = body == Body::TallTiles};
  for (const FloatWidth& width : kFloatWidths) {
    if (!detail::has_width(p, width.tokens)) continue;
    const bool widest = width.tokens == kFloatWidths.back().tokens;
    if (p.m > width.tokens && !(widest && p.bytes == 2)) continue;
    // If all blocks run at once, each gets the largest ring that fits.
    const std::int64_t each = detail::blocks_each(p, width.tokens);
    // The widest kernel is for gemms whose tiles would leave half of the multiprocessors idle. If
    // its blocks need a second round, tiles are better: they have as many rounds, but twice the
    // columns.
    if (widest && each > width.resident) break;
    if (width.tokens == 64 && detail::prefers_tiles(p, each)) break;
    return detail::few_rows_of(width, each);
  }
  FloatChoice tiles;
  tiles.tall = detail::prefers_tall(p);
  return tiles;
}

}  // namespace planq::linear::sm90

namespace planq::linear::sm90::groups {

// --- Weights that are codes, in the order of GroupsSm90 ------------------------------------------

// A kernel of sm90/groups_tiles.cuh. `tokens`: of a tile. `owners`: warpgroups of a block with 64
// columns each of their own. `sharing`: warpgroups that share the same columns and take spans of k
// in turn. `cost`: microseconds of a round of tiles with 8192 terms, measured on one H200.
struct TileWidth {
  int tokens, owners, sharing;
  double cost;
};
inline constexpr std::array<TileWidth, 5> kTileWidths = {
    {{32, 1, 4, 22}, {32, 2, 2, 36}, {64, 1, 2, 24.5}, {64, 2, 2, 45}, {128, 2, 1, 65}}};
// Whether there is a kernel of a width for runs of so many terms. Short runs have two sets of sums,
// for which registers have no room beside those of many tokens or of many groups.
constexpr bool has_width(const TileWidth& width, int run) { return width.owners == 1 || run >= 64; }

// The estimated time of a width.
inline double microseconds(const sm90::Problem& p, const TileWidth& width) {
  using sm90::detail::parts;
  const std::int64_t tiles = parts(p.m, width.tokens) * parts(p.n, 64 * width.owners) * p.batches;
  return static_cast<double>(parts(tiles, p.multiprocessors)) * width.cost *
         static_cast<double>(p.k) / 8192;
}
// `run`: terms of a run.
inline int choose_width(const sm90::Problem& p, int run) {
  int best = 0;
  for (int i = 1; i < static_cast<int>(kTileWidths.size()); ++i)
    if (has_width(kTileWidths[i], run) &&
        microseconds(p, kTileWidths[i]) < microseconds(p, kTileWidths[best]))
      best = i;
  return best;
}

// Of experts, whose rows the launch does not know: by how many each has if all have as many.
inline int choose_width(std::int64_t rows, std::int64_t experts, int run) {
  constexpr int kFew = 0, kShort = 2, kMany = 3, kMost = 4;  // of kTileWidths
  if (rows <= experts * kTileWidths[kFew].tokens) return kFew;
  if (!has_width(kTileWidths[kMany], run)) return kShort;
  return rows > experts * kTileWidths[kMany].tokens ? kMost : kMany;
}

// A few rows of codes that are looked up in a table: whether tiles are faster than
// sm90/groups_few_rows.cuh, whose look-ups grow with the rows. It was measured on one H200.
inline bool prefers_tiles(const sm90::Problem& p, int run) {
  if (p.m <= 8 || run < 32) return false;
  constexpr double kLaunch = 4;
  const double few = (16.4 + 0.00232 * static_cast<double>(p.n)) * static_cast<double>(p.k) / 8192;
  return kLaunch + microseconds(p, kTileWidths[choose_width(p, run)]) < few;
}

// Panels cost what it takes to write their numbers, in launches of their own, and then hardly more
// than numbers do.
inline bool prefers_panels(const sm90::Problem& p, int run) {
  const double weights = static_cast<double>(p.n) * static_cast<double>(p.k);
  const double multiply = 2 * static_cast<double>(p.m * p.batches) * weights / 6e8;
  constexpr double kLaunches = 30;
  return kLaunches + weights * 1.6e-6 + multiply <
         microseconds(p, kTileWidths[choose_width(p, run)]);
}

}  // namespace planq::linear::sm90::groups
