// Exclusive sums of counts on CUDA, in two launches: blocks add up a chunk each, then each block
// finds what the chunks before its own hold and goes on from there. Integers, so no bit depends on
// the grid.
#pragma once

#include <cstdint>

#include "core/bound.h"
#include "core/scratch.h"

namespace planq::cuda {

// The most chunks that there are: a block looks at the sums of all of them.
inline constexpr std::int64_t kPrefixChunks = 1024;

// Counts with the memory that their sums take.
struct Prefix {
  std::int32_t* counts;
  std::int64_t* before;  // what the counts before each one add up to
  std::int64_t* sums;    // of chunks
};
inline Prefix book_prefix(Scratch& scratch, std::int64_t count) {
  Prefix prefix;
  prefix.counts = scratch.take<std::int32_t>(static_cast<std::size_t>(count));
  prefix.before = scratch.take<std::int64_t>(static_cast<std::size_t>(count));
  prefix.sums = scratch.take<std::int64_t>(kPrefixChunks);
  return prefix;
}

Status preload_prefix();
// `total`: where all counts together go; null: nowhere.
Status launch_prefix(const Prefix& prefix, std::int64_t count, std::int64_t* total, Bound& bound);

}  // namespace planq::cuda
