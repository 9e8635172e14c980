#include "cuda/prefix.h"

#include "cuda/launch.cuh"
#include "cuda/scan.cuh"

namespace planq::cuda {
namespace {

using std::int32_t;
using std::int64_t;

constexpr int kPrefixThreads = 256, kPrefixEach = 8;
constexpr int kPrefixTile = kPrefixThreads * kPrefixEach;
struct PrefixArgs {
  Prefix prefix;
  int64_t count, chunk;  // of all, and of a block
  int64_t* total;
};

__global__ void __launch_bounds__(kPrefixThreads)
    sum_chunks(const __grid_constant__ PrefixArgs args) {
  const int64_t first = blockIdx.x * args.chunk;
  const int64_t last = first + args.chunk < args.count ? first + args.chunk : args.count;
  int64_t sum = 0;
  for (int64_t i = first + threadIdx.x; i < last; i += kPrefixThreads) sum += args.prefix.counts[i];
  const BlockSum<int64_t> block = sum_block<kPrefixThreads>(sum);
  if (threadIdx.x == 0) args.prefix.sums[blockIdx.x] = block.all;
}

__global__ void __launch_bounds__(kPrefixThreads)
    place_chunks(const __grid_constant__ PrefixArgs args) {
  int64_t earlier = 0;
  for (unsigned i = threadIdx.x; i < blockIdx.x; i += kPrefixThreads)
    earlier += args.prefix.sums[i];
  int64_t base = sum_block<kPrefixThreads>(earlier).all;
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
    const BlockSum<int64_t> block = sum_block<kPrefixThreads>(sum);
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
  PLANQ_TRY(preload(sum_chunks));
  return preload(place_chunks);
}

Status launch_prefix(const Prefix& prefix, std::int64_t count, std::int64_t* total, Bound& bound) {
  const std::int64_t tiles = ceil_div(ceil_div(count, kPrefixChunks), kPrefixTile);
  const std::int64_t chunk = std::max<std::int64_t>(tiles, 1) * kPrefixTile;
  const PrefixArgs args = {prefix, count, chunk, total};
  Grid grid{};
  grid.blocks = std::max<std::int64_t>(ceil_div(count, chunk), 1);
  grid.threads = dim3(kPrefixThreads);
  PLANQ_TRY(launch(sum_chunks, grid, args, bound));
  return launch(place_chunks, grid, args, bound);
}

}  // namespace planq::cuda
