// Which kernel of sm90/int8.cuh a product takes, by what each would cost. Every choice gives the
// same bits.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

namespace planq::linear::sm90 {

struct Choice {
  bool few_rows = false;
  // Of a few_rows one: tokens, blocks at a time on a multiprocessor, and blocks that split k.
  int width = 128, resident = 1, cluster = 1;
};

struct Problem {
  std::int64_t m, n, k, batches;
  int multiprocessors;
};

inline constexpr int kBand = 16;  // tiles of 128 rows down a band of them

namespace detail {

// Codes of a box along k, rows and columns of a tile, columns of a few_rows one.
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

// Streamed tiles are as wide as there are tokens; of several, the other kernels are better.
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

}  // namespace planq::linear::sm90
