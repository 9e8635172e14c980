// Maxima and minima of integers across lanes, a block and a cluster. Integers make the order of a
// reduction irrelevant to its bits.
#pragma once

#include <cstdint>

#include "core/architectures.h"
#include "cuda/memory_access.cuh"

namespace planq::cuda {

// Butterfly over `width` (a power of two) neighbouring lanes; every lane gets the result.
template <class Key>
__device__ __forceinline__ Key subwarp_max(Key key, int width) {
  for (int step = width >> 1; step > 0; step >>= 1) {
    const Key other = __shfl_xor_sync(kAllLanes, key, step);
    key = other > key ? other : key;
  }
  return key;
}

__device__ __forceinline__ std::int32_t warp_max(std::int32_t key) {
  return __reduce_max_sync(kAllLanes, key);
}
// The high halves decide; among the lanes that share the highest, the low halves do.
__device__ __forceinline__ std::int64_t warp_max(std::int64_t key) {
  const auto high = static_cast<std::int32_t>(key >> 32);
  const std::int32_t top = __reduce_max_sync(kAllLanes, high);
  const std::uint32_t low = __reduce_max_sync(
      kAllLanes, high == top ? static_cast<std::uint32_t>(key) : std::uint32_t{0});
  return static_cast<std::int64_t>(top) << 32 | low;
}

// Thread block clusters exist from sm_90 on; on older GPUs these functions are compiled but do
// nothing, and the host launches no clusters.
__device__ __forceinline__ void cluster_arrive_unordered() {
#if PLANQ_HAS_CLUSTERS
  asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
#endif
}
__device__ __forceinline__ void cluster_wait() {
#if PLANQ_HAS_CLUSTERS
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
#endif
}
__device__ __forceinline__ int cluster_rank() {
  int rank = 0;
#if PLANQ_HAS_CLUSTERS
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
#endif
  return rank;
}
// The number of this cluster, or of this block where there are no clusters.
__device__ __forceinline__ std::uint32_t cluster_index() {
  std::uint32_t index = blockIdx.x;
#if PLANQ_HAS_CLUSTERS
  asm("mov.u32 %0, %%clusterid.x;" : "=r"(index));
#endif
  return index;
}
__device__ __forceinline__ int cluster_size() {
  int size = 1;
#if PLANQ_HAS_CLUSTERS
  asm("mov.u32 %0, %%cluster_nctarank;" : "=r"(size));
#endif
  return size;
}
__device__ __forceinline__ std::uint32_t shared_address(const void* local) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(local));
}

// Bytes that other blocks of the cluster send to this one. One thread calls expect() with their
// number before the cluster's first barrier; each barrier is used once. A barrier of the whole
// cluster would do as well, but it also waits for all stores of the block to global memory.
class Mailbox {
 public:
  __device__ __forceinline__ void expect(std::uint32_t bytes) {
#if PLANQ_HAS_CLUSTERS
    const std::uint32_t at = shared_address(&barrier_);
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(at) : "memory");
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(at), "r"(bytes)
                 : "memory");
#endif
  }
  // Sends `value` to the variable of block `rank` that is `local` in this one.
  template <class T>
  __device__ __forceinline__ void send(T* local, int rank, T value) {
#if PLANQ_HAS_CLUSTERS
    std::uint32_t address, barrier;
    asm("mapa.shared::cluster.u32 %0, %1, %2;"
        : "=r"(address)
        : "r"(shared_address(local)), "r"(rank));
    asm("mapa.shared::cluster.u32 %0, %1, %2;"
        : "=r"(barrier)
        : "r"(shared_address(&barrier_)), "r"(rank));
    if constexpr (sizeof(T) == 8)
      asm volatile(
          "st.async.shared::cluster.mbarrier::complete_tx::bytes.u64 [%0], %1, [%2];" ::"r"(
              address),
          "l"(value), "r"(barrier)
          : "memory");
    else
      asm volatile(
          "st.async.shared::cluster.mbarrier::complete_tx::bytes.u32 [%0], %1, [%2];" ::"r"(
              address),
          "r"(value), "r"(barrier)
          : "memory");
#endif
  }
  // Returns when all bytes are there.
  __device__ __forceinline__ void wait() {
#if PLANQ_HAS_CLUSTERS
    std::uint32_t done = 0;
    do {
      asm volatile(
          "{.reg .pred p;"
          "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%1], 0;"
          "selp.u32 %0, 1, 0, p;}"
          : "=r"(done)
          : "r"(shared_address(&barrier_))
          : "memory");
    } while (done == 0);
#endif
  }

 private:
  std::uint64_t barrier_;
};

}  // namespace planq::cuda
