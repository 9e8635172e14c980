// The bodies of a SKU of sm_90a. `Fastest` chooses among the others by estimates of their times
// (heuristics.h), and a bound launch names the one that it chose. The others are for whoever pins a
// kernel: each takes every gemm that Fastest takes.
#pragma once

#include <cstdint>
#include <string_view>

namespace planq::linear::sm90 {

enum class Body : std::uint8_t { Fastest, Tiles, TallTiles, FewRows, MmaFewRows, Panels };

constexpr std::string_view name_of(Body body) {
  switch (body) {
    case Body::Tiles:
      return "wgmma_tiles";
    case Body::TallTiles:
      return "wgmma_tall_tiles";
    case Body::FewRows:
      return "wgmma_few_rows";
    case Body::MmaFewRows:  // by mma.sync: operands that TMA cannot read, and weights that are
                            // codes
      return "few_rows";
    case Body::Panels:  // of numbers, in the workspace
      return "wgmma_panels";
    default:
      return "wgmma";
  }
}

// Fastest is the first choice.
constexpr std::int16_t rank_of(Body body) {
  return static_cast<std::int16_t>(50 + static_cast<int>(body));
}

}  // namespace planq::linear::sm90
