// Inclusive and exclusive sums of integers across the lanes of a warp and the threads of a block.
#pragma once

#include "cuda/memory_access.cuh"

namespace planq::cuda {

// The sum of the values of lanes 0 to own.
template <class T>
__device__ __forceinline__ T scan_lanes(T value) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
#pragma unroll
  for (int step = 1; step < kWarp; step *= 2) {
    const T other = __shfl_up_sync(kAllLanes, value, step);
    if (lane >= step) value += other;
  }
  return value;
}

// The sum of the values of the threads before this one, and of all threads of the block.
template <class T>
struct BlockSum {
  T before, all;
};

// All threads of a block of kThreads call this. Two barriers.
template <int kThreads, class T>
__device__ __forceinline__ BlockSum<T> sum_block(T value) {
  __shared__ T totals[kThreads / kWarp];
  const T own = scan_lanes(value);
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  __syncthreads();  // the totals of a call before have been read
  if (threadIdx.x % kWarp == kWarp - 1) totals[warp] = own;
  __syncthreads();
  BlockSum<T> sum = {own - value, 0};
#pragma unroll
  for (int i = 0; i < kThreads / kWarp; ++i) {
    if (i < warp) sum.before += totals[i];
    sum.all += totals[i];
  }
  return sum;
}

}  // namespace planq::cuda
