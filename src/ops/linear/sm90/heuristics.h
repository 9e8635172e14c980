// Which kernel for sm_90 computes a gemm, by what each would cost, and the measurements that the
// numbers come from. Every choice gives the same bits.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

namespace planq::linear::sm90 {

// --- Codes of 8 bits: tiles (int8_tiles.cuh), or few rows (int8_few_rows.cuh)
// ---------------------

struct Choice {
  bool few_rows = false;
  // Of one of few rows: tokens, blocks at a time on a multiprocessor, and blocks that split k.
  int width = 128, resident = 1, cluster = 1;
};

struct Problem {
  std::int64_t m, n, k, batches;
  int multiprocessors;
};

inline constexpr int kBand = 16;  // tiles of 128 rows down a band of them

namespace detail {

// Codes of a stage along k, rows and columns of a tile, columns of one of few rows.
inline constexpr std::int64_t kBox = 128;

inline std::int64_t parts(std::int64_t whole, std::int64_t part) {
  return (whole + part - 1) / part;
}

// Microseconds, as measured on one H200. `box`: of a box of k where the multiprocessors are full;
// `tile`: what a tile costs beside its boxes; `split`: for each block that splits k.
struct Cost {
  Choice choice;
  double box, tile, split;
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
  const std::int64_t clusters = parts(p.m, c.width) * parts(p.n, kBox) * p.batches;
  const std::int64_t slots = std::max(p.multiprocessors * c.resident / cluster, 1);
  const auto rounds = static_cast<double>(parts(clusters, slots));
  const double boxes = static_cast<double>(parts(p.k, kBox)) / splits;
  const double bytes = static_cast<double>(p.batches * (p.n + p.m) * p.k);
  const double least = bytes / kBytesPerMicrosecond;
  return kLaunch + std::max(rounds * (boxes * cost.box + cost.tile), least) + splits * cost.split;
}

// Up to as many rows, the bytes of the weights are all that counts.
inline constexpr std::int64_t kFewTokens = 64;

// Those for few rows are as wide as there are tokens; of several, the other kernels are better.
inline bool fits_tokens(int width, std::int64_t tokens) {
  if (tokens > 128) return false;
  return width >= tokens && (width == 16 || width < 2 * tokens);
}

}  // namespace detail

inline Choice choose(const Problem& p) {
  Choice best;
  double least = 0;
  for (const detail::Cost& cost : detail::kCosts) {
    const Choice& c = cost.choice;
    if (c.few_rows ? !detail::fits_tokens(c.width, p.m) : p.m <= detail::kFewTokens) continue;
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

// --- Floating numbers: tiles (float_tiles.cuh), or few rows (float_few_rows.cuh)
// ------------------

struct FloatProblem : Problem {
  int bytes;             // of a number
  bool joins_by_scales;  // slices have scales of their own
  bool input_transposed;
};

struct FloatChoice {
  bool few_rows = false;
  // Of one of few rows: tokens, and blocks at a time on a multiprocessor, which share its memory.
  int tokens = 0, resident = 1;
  // Of tiles: those of twice the rows.
  bool tall = false;
};

// Tokens that kernels for few rows are wide, and the most blocks of 64 columns at a time: more have
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

// Up to as many tokens, products whose slices have scales take kernels for few rows: of more, tiles
// were faster.
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

namespace planq::linear::sm90::weight_only {

// --- Weights of 4-bit codes: few rows (sm80/weight_only_few_rows.cuh), tiles that dequantize in
// registers (weight_only_tiles.cuh), or panels of numbers in the workspace (weight_only/panels.cuh)
// --

// A kernel of sm90/weight_only_tiles.cuh: tokens of a tile; groups of warps with columns of their
// own, of 64, and with turns at the slices of the same columns; steps whose numbers are held at a
// time. `cost`: microseconds of a round of tiles with 8192 terms, as measured on one H200.
struct Width {
  int tokens, owners, sharing, at_once;
  double cost;
};
inline constexpr std::array<Width, 6> kWidths = {{{8, 1, 4, 4, 19},
                                                  {16, 1, 4, 4, 22},
                                                  {32, 1, 4, 4, 31},
                                                  {32, 4, 1, 4, 92},
                                                  {64, 4, 1, 2, 106},
                                                  {128, 2, 1, 4, 77}}};

// What the widths above cost more under nested statistics where groups take turns: all of them wait
// for the warps that restore these.
inline constexpr double kNestedSharing = 1.35;

enum class Way { FewRows, Dequantize, Panels };
struct Choice {
  Way way;
  int width = 0;  // which of kWidths
};

namespace detail {

// Microseconds, as measured on one H200.
inline constexpr double kStart = 4;

inline double cost_of(const Width& width, const sm90::Problem& p, bool nested) {
  using sm90::detail::parts;
  const std::int64_t tiles = parts(p.m, width.tokens) * parts(p.n, 64 * width.owners) * p.batches;
  const double round = width.cost * (nested && width.sharing > 1 ? kNestedSharing : 1);
  return kStart + static_cast<double>(parts(tiles, p.multiprocessors)) * round *
                      static_cast<double>(p.k) / 8192;
}
// Of up to 16 rows.
inline double few_rows_cost(const sm90::Problem& p) {
  const double weights = static_cast<double>(p.n) * static_cast<double>(p.k * p.batches);
  return kStart + 2 + weights * (p.m <= 4 ? 3.5e-7 : p.m <= 8 ? 4.3e-7 : 6e-7);
}
// Codes become numbers once, and each product reads them.
inline double panels_cost(const sm90::Problem& p) {
  const double weights = static_cast<double>(p.n) * static_cast<double>(p.k);
  const double read = weights * 2 / sm90::detail::kBytesPerMicrosecond;
  const double multiply = 2 * static_cast<double>(p.m) * weights / 7.5e8;
  return kStart + weights * 1.4e-6 + static_cast<double>(p.batches) * std::max(read, multiply);
}

}  // namespace detail

// `few_rows`, `dequantize`: whether these kernels take the operands; panels take all. `nested`:
// statistics are.
inline Choice choose(const sm90::Problem& p, bool few_rows, bool dequantize, bool nested) {
  Choice best{Way::Panels};
  double least = detail::panels_cost(p);
  const auto consider = [&](const Choice& choice, double cost) {
    if (cost >= least) return;
    least = cost;
    best = choice;
  };
  if (few_rows) consider({Way::FewRows}, detail::few_rows_cost(p));
  for (int i = 0; dequantize && i < static_cast<int>(kWidths.size()); ++i)
    consider({Way::Dequantize, i}, detail::cost_of(kWidths[i], p, nested));
  return best;
}

}  // namespace planq::linear::sm90::weight_only
