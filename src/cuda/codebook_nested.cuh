// Nested statistics: the mean of absmax by a fixed tree, and codes of what they differ from it.
#pragma once

#include "cuda/codebook_encode.cuh"

namespace planq::cuda {

// --- The mean ----------------------------------------------------------------------------------

template <class C>
struct SumArgs {
  const C* values;
  C* sums;  // one a leaf
  std::int64_t count;
  std::int64_t divisor;  // of the last sum, which is then a mean; 0 for others
};

// A block for a leaf: neighbours in pairs, filled up with +0.
template <class C>
__global__ void __launch_bounds__(kCodebookThreads)
    sum_leaves(const __grid_constant__ SumArgs<C> args) {
  constexpr int kEach = math::kSumLeaf / kCodebookThreads, kWarps = kCodebookThreads / kWarp;
  static_assert(kEach == 4 && kWarps == 8);
  __shared__ C of_warps[kWarps];
  const std::int64_t first =
      std::int64_t{blockIdx.x} * math::kSumLeaf + static_cast<int>(threadIdx.x) * kEach;
  C values[kEach];
#pragma unroll
  for (int i = 0; i < kEach; ++i)
    values[i] = first + i < args.count ? load_single(args.values + first + i) : C{0};
  C sum = (values[0] + values[1]) + (values[2] + values[3]);
#pragma unroll
  for (int step = 1; step < kWarp; step *= 2) sum = sum + __shfl_xor_sync(kAllLanes, sum, step);
  if (threadIdx.x % kWarp == 0) of_warps[threadIdx.x / kWarp] = sum;
  __syncthreads();
  if (threadIdx.x != 0) return;
  const C low = (of_warps[0] + of_warps[1]) + (of_warps[2] + of_warps[3]);
  const C high = (of_warps[4] + of_warps[5]) + (of_warps[6] + of_warps[7]);
  sum = low + high;
  store_single(args.sums + blockIdx.x, args.divisor > 0 ? math::mean_of(sum, args.divisor) : sum);
}

// --- Codes of absmax ---------------------------------------------------------------------------

template <class C>
struct NestArgs {
  const C* absmax;
  const C* mean;
  std::uint8_t* output;
  C* nested_absmax;
  std::int64_t count, block_size, blocks;
};

// A warp for a block of absmax, in turns.
template <class C>
__device__ __forceinline__ void nest_all(const NestArgs<C>& args, const DynamicSearch& dynamic) {
  using Bits = MagnitudeKey<C>;
  __shared__ math::ByteTable table;
  copy_shared(table, dynamic.table);
  __syncthreads();
  const C mean = load_single(args.mean);
  const int lane = static_cast<int>(threadIdx.x % kWarp);
  const std::int64_t warps = std::int64_t{gridDim.x} * (kCodebookThreads / kWarp);
#pragma unroll 1
  for (std::int64_t block =
           std::int64_t{blockIdx.x} * (kCodebookThreads / kWarp) + threadIdx.x / kWarp;
       block < args.blocks; block += warps) {
    const BlockSpan span = block_span(block, args.block_size, args.count);
    Bits largest = 0;
    for (std::int64_t i = span.first + lane; i < span.last; i += kWarp) {
      const Bits key = single_key<C>(load_single(args.absmax + i) - mean, false);
      largest = key > largest ? key : largest;
    }
#pragma unroll
    for (int step = kWarp / 2; step > 0; step /= 2) {
      const Bits other = __shfl_xor_sync(kAllLanes, largest, step);
      largest = other > largest ? other : largest;
    }
    const C absmax = math::stored_absmax(magnitude_of<C>(largest));
    if (lane == 0) store_single(args.nested_absmax + block, absmax);
    const auto division = math::block_division(absmax, Quotient::Reciprocal);
    for (std::int64_t i = span.first + lane; i < span.last; i += kWarp)
      store_once(args.output + i, any_code(load_single(args.absmax + i) - mean, division, table));
  }
}

}  // namespace planq::cuda
