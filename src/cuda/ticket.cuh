// The last block of a grid goes on alone, with what the other blocks have left in memory.
#pragma once

#include <cstdint>

namespace planq::cuda {

// Whether all other blocks have called this; the block then sees everything that they wrote before.
// `tickets`: a word in memory, 0 before the launch. All threads of the block call this. One fence
// is enough: the barrier before it orders the writes of all threads, and the barrier behind it
// their reads.
__device__ __forceinline__ bool comes_last(std::uint32_t* tickets) {
  __shared__ bool last;
  __syncthreads();
  if (threadIdx.x == 0) {
    __threadfence();
    last = atomicAdd(tickets, 1u) == gridDim.x - 1;
    __threadfence();
  }
  __syncthreads();
  return last;
}

}  // namespace planq::cuda
