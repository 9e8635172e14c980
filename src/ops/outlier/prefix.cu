#include "ops/outlier/prefix.h"

#include "cuda/launch.cuh"
#include "ops/outlier/scan.cuh"

namespace planq::outlier {
namespace {

using std::int32_t;

constexpr int kPrefixThreads = 256, kPrefixEach = 8;
constexpr int kPrefixTile = kPrefixThreads * kPrefixEach;
struct PrefixArgs {
  Prefix prefix;
  int64_t count, chunk;  // of all, and of a block
  int64_t* total;
};

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

__global__ void __launch_bounds__(kPrefixThreads)
    sum_chunks(const __grid_constant__ PrefixArgs args) {
  const int64_t first = blockIdx.x * args.chunk;
  const int64_t last = first + args.chunk < args.count ? first + args.chunk : args.count;
  int64_t sum = 0;
  for (int64_t i = first + threadIdx.x; i < last; i += kPrefixThreads) sum += args.prefix.counts[i];
  const BlockSum block = sum_block(sum);
  if (threadIdx.x == 0) args.prefix.sums[blockIdx.x] = block.all;
}

__global__ void __launch_bounds__(kPrefixThreads)
    place_chunks(const __grid_constant__ PrefixArgs args) {
  int64_t earlier = 0;
  for (unsigned i = threadIdx.x; i < blockIdx.x; i += kPrefixThreads)
    earlier += args.prefix.sums[i];
  int64_t base = sum_block(earlier).all;
  const int64_t first = blockIdx.x * args.chunk;
  const int64_t last = first + args.chunk < args.count ? first + args.chunk : args.count;
  for (int64_t tile = first; tile < last; tile += kPrefixTile) {
    const int64_t own = tile + threadIdx.x * kPrefixEach;
    int32_t counts[kPrefixEach];
    int64_t sum = 0;
#pragma unroll
    for (int i = 0; i < kPrefixEach; ++i) {
      counts[i] = own + i < last ? args.prefix.counts[own + i] : 0;
      sum += counts[i];
    }
    const BlockSum block = sum_block(sum);
    int64_t before = base + block.before;
#pragma unroll
    for (int i = 0; i < kPrefixEach; ++i) {
      if (own + i < last) args.prefix.before[own + i] = before;
      before += counts[i];
    }
    base += block.all;
  }
  if (args.total && blockIdx.x == gridDim.x - 1 && threadIdx.x == 0) *args.total = base;
}

}  // namespace

Status preload_prefix() {
  PLANQ_TRY(cuda::preload(sum_chunks));
  return cuda::preload(place_chunks);
}

Status launch_prefix(const Prefix& prefix, int64_t count, int64_t* total, Bound& bound) {
  const int64_t tiles = cuda::ceil_div(cuda::ceil_div(count, kPrefixChunks), kPrefixTile);
  const int64_t chunk = std::max<int64_t>(tiles, 1) * kPrefixTile;
  const PrefixArgs args = {prefix, count, chunk, total};
  cuda::Grid grid{};
  grid.blocks = std::max<int64_t>(cuda::ceil_div(count, chunk), 1);
  grid.threads = dim3(kPrefixThreads);
  PLANQ_TRY(cuda::launch(sum_chunks, grid, args, bound));
  return cuda::launch(place_chunks, grid, args, bound);
}

}  // namespace planq::outlier
