// Sums across the lanes of a warp.
#pragma once

#include <cstdint>

#include "cuda/memory_access.cuh"

namespace planq::outlier {

// The sum of the values of lanes 0 to own.
__device__ __forceinline__ std::int64_t scan_lanes(std::int64_t value) {
  const int lane = static_cast<int>(threadIdx.x) % cuda::kWarp;
#pragma unroll
  for (int step = 1; step < cuda::kWarp; step *= 2) {
    const std::int64_t other = __shfl_up_sync(cuda::kAllLanes, value, step);
    if (lane >= step) value += other;
  }
  return value;
}

}  // namespace planq::outlier
