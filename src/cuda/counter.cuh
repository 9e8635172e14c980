// How many indices a condition holds for, counted by blocks behind those of a kernel's own work. A
// single block writes the number; several add to one that was cleared before.
#pragma once

#include <algorithm>
#include <cstdint>

#include "core/device.h"
#include "cuda/launch.cuh"
#include "cuda/memory_access.cuh"

namespace planq::cuda {

struct Counter {
  std::int64_t size, blocks;  // of indices, and blocks that share them
  std::int64_t* total;

  Counter(std::int64_t count, void* to, const Device& device)
      : size(count),
        blocks(count <= kFew ? 1
                             : std::min<std::int64_t>(ceil_div(count, kOfBlock),
                                                      std::max(device.multiprocessors, 1))),
        total(static_cast<std::int64_t*>(to)) {}

  // Before the launch.
  Status clear(Bound& bound) const {
    return blocks > 1 ? cuda::clear(total, sizeof *total, bound) : Status::success();
  }
  // By all threads of the block that is number `block` of these. An integer sum has one value in
  // any order.
  template <int kThreads, class Holds>
  __device__ __forceinline__ void count(std::int64_t block, const Holds& holds) const {
    __shared__ int of_warps[kThreads / kWarp];
    const std::int64_t step = blocks * kThreads;
    int own = 0;
#pragma unroll 1
    for (std::int64_t i = block * kThreads + threadIdx.x; i < size; i += kEach * step) {
#pragma unroll
      for (int k = 0; k < kEach; ++k) {
        const std::int64_t at = i + k * step;
        if (at < size && holds(at)) ++own;
      }
    }
    own = __reduce_add_sync(kAllLanes, own);
    if (threadIdx.x % kWarp == 0) of_warps[threadIdx.x / kWarp] = own;
    __syncthreads();
    if (threadIdx.x > 0) return;
    std::int64_t all = 0;
    for (const int each : of_warps) all += each;
    if (blocks == 1)
      *total = all;
    else if (all > 0)
      atomicAdd(reinterpret_cast<unsigned long long*>(total), static_cast<unsigned long long>(all));
  }

 private:
  // Indices that a thread has under way; those that one block counts: so few that no other is
  // needed, and of more.
  static constexpr int kEach = 8;
  static constexpr std::int64_t kFew = 8192, kOfBlock = 4096;
};

}  // namespace planq::cuda
