// How a product with weights that are 4-bit codes is computed on sm_90: by the kernel for few rows
// (sm80/weight_only_few_rows.cuh), by one that decodes weights for a tile of tokens
// (sm90/weight_only_tiles.cuh), or by panels of numbers in the workspace
// (sm90/weight_only_sm90a.cu). Every choice gives the same bits.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "ops/linear/sm90/heuristics.h"

namespace planq::linear::sm90::weight_only {

// A kernel of sm90/weight_only_tiles.cuh: tokens of a tile; groups of warps with columns of their
// own, of 64, and with turns at the slices of the same columns; steps whose numbers are held at a
// time. `cost`: microseconds of a round of tiles with 8192 terms, as measured on one H200.
struct Width {
  int tokens, owners, schedule, at_once;
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
inline constexpr double kNestedTurns = 1.35;

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
  const double round = width.cost * (nested && width.schedule > 1 ? kNestedTurns : 1);
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

// `few_rows`, `decoding`: whether these kernels take the operands; panels take all. `nested`:
// statistics are.
inline Choice choose(const sm90::Problem& p, bool few_rows, bool decoding, bool nested) {
  Choice best{Way::Panels};
  double least = detail::panels_cost(p);
  const auto consider = [&](const Choice& choice, double cost) {
    if (cost >= least) return;
    least = cost;
    best = choice;
  };
  if (few_rows) consider({Way::FewRows}, detail::few_rows_cost(p));
  for (int i = 0; decoding && i < static_cast<int>(kWidths.size()); ++i)
    consider({Way::Dequantize, i}, detail::cost_of(kWidths[i], p, nested));
  return best;
}

}  // namespace planq::linear::sm90::weight_only
