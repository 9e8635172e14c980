// Exclusive sums of counts in two launches: blocks add up a chunk each, then each block finds what
// the chunks before its own hold and goes on from there. Integers, so no bit depends on the grid.
#pragma once

#include <cstdint>

#include "core/scratch.h"
#include "cuda/launch.cuh"
#include "cuda/memory_access.cuh"

namespace planq::outlier {

using std::int32_t;
using std::int64_t;

inline constexpr int kPrefixThreads = 256, kPrefixEach = 8;
inline constexpr int kPrefixTile = kPrefixThreads * kPrefixEach;
// The most chunks that there are: a block looks at the sums of all of them.
inline constexpr int64_t kPrefixChunks = 1024;

struct PrefixArgs {
  const int32_t* counts;
  int64_t count;    // of counts
  int64_t chunk;    // counts of a block
  int64_t* sums;    // of chunks
  int64_t* before;  // what the counts before each one add up to
  int64_t* total;   // where all of them together go; null: nowhere
};

// The sum of the values of lanes 0 to own.
__device__ __forceinline__ int64_t scan_lanes(int64_t value) {
  const int lane = static_cast<int>(threadIdx.x) % cuda::kWarp;
#pragma unroll
  for (int step = 1; step < cuda::kWarp; step *= 2) {
    const int64_t other = __shfl_up_sync(cuda::kAllLanes, value, step);
    if (lane >= step) value += other;
  }
  return value;
}

// What the threads before this one add up to, and all of the block; two barriers.
struct BlockSum {
  int64_t before, all;
};
__device__ __forceinline__ BlockSum sum_block(int64_t value) {
  __shared__ int64_t totals[kPrefixThreads / cuda::kWarp];
  const int64_t own = scan_lanes(value);
  const int warp = static_cast<int>(threadIdx.x) / cuda::kWarp;
  __syncthreads();  // the totals of a call before have been read
  if (threadIdx.x % cuda::kWarp == cuda::kWarp - 1) totals[warp] = own;
  __syncthreads();
  BlockSum sum = {own - value, 0};
#pragma unroll
  for (int i = 0; i < kPrefixThreads / cuda::kWarp; ++i) {
    if (i < warp) sum.before += totals[i];
    sum.all += totals[i];
  }
  return sum;
}

static __global__ void __launch_bounds__(kPrefixThreads)
    sum_chunks(const __grid_constant__ PrefixArgs args) {
  const int64_t first = blockIdx.x * args.chunk;
  const int64_t last = first + args.chunk < args.count ? first + args.chunk : args.count;
  int64_t sum = 0;
  for (int64_t i = first + threadIdx.x; i < last; i += kPrefixThreads) sum += args.counts[i];
  const BlockSum block = sum_block(sum);
  if (threadIdx.x == 0) args.sums[blockIdx.x] = block.all;
}

static __global__ void __launch_bounds__(kPrefixThreads)
    place_chunks(const __grid_constant__ PrefixArgs args) {
  int64_t earlier = 0;
  for (unsigned i = threadIdx.x; i < blockIdx.x; i += kPrefixThreads) earlier += args.sums[i];
  int64_t base = sum_block(earlier).all;
  const int64_t first = blockIdx.x * args.chunk;
  const int64_t last = first + args.chunk < args.count ? first + args.chunk : args.count;
  for (int64_t tile = first; tile < last; tile += kPrefixTile) {
    const int64_t own = tile + threadIdx.x * kPrefixEach;
    int32_t counts[kPrefixEach];
    int64_t sum = 0;
#pragma unroll
    for (int i = 0; i < kPrefixEach; ++i) {
      counts[i] = own + i < last ? args.counts[own + i] : 0;
      sum += counts[i];
    }
    const BlockSum block = sum_block(sum);
    int64_t before = base + block.before;
#pragma unroll
    for (int i = 0; i < kPrefixEach; ++i) {
      if (own + i < last) args.before[own + i] = before;
      before += counts[i];
    }
    base += block.all;
  }
  if (args.total && blockIdx.x == gridDim.x - 1 && threadIdx.x == 0) *args.total = base;
}

// Counts with the memory that their sums take.
struct Prefix {
  int32_t* counts;
  int64_t *before, *sums;
};
inline Prefix book_prefix(Scratch& scratch, int64_t count) {
  Prefix prefix;
  prefix.counts = scratch.take<int32_t>(static_cast<std::size_t>(count));
  prefix.before = scratch.take<int64_t>(static_cast<std::size_t>(count));
  prefix.sums = scratch.take<int64_t>(kPrefixChunks);
  return prefix;
}

inline Status preload_prefix() {
  PLANQ_TRY(cuda::preload(sum_chunks));
  return cuda::preload(place_chunks);
}

inline Status launch_prefix(const Prefix& prefix, int64_t count, int64_t* total, Bound& bound) {
  const int64_t tiles = cuda::ceil_div(cuda::ceil_div(count, kPrefixChunks), kPrefixTile);
  PrefixArgs args{prefix.counts, count, 0, prefix.sums, prefix.before, total};
  args.chunk = std::max<int64_t>(tiles, 1) * kPrefixTile;
  cuda::Grid grid{};
  grid.blocks = std::max<int64_t>(cuda::ceil_div(count, args.chunk), 1);
  grid.threads = dim3(kPrefixThreads);
  PLANQ_TRY(cuda::launch(sum_chunks, grid, args, bound));
  return cuda::launch(place_chunks, grid, args, bound);
}

}  // namespace planq::outlier
