// Barriers in shared memory that count arrivals and bytes, for pipelines between warps of a block
// or of a cluster. A barrier goes through phases. A phase ends when all expected arrivals and bytes
// have come, and then the next one begins.
//
// Arrivals and waits order memory for the block alone, which is the instructions' default. That is
// enough: what the barriers guard is written by TMA and read by wgmma. Order for the cluster at
// each of them would cost a fifth of the speed.
#pragma once

#include <cstdint>

#include "cuda/reduce.cuh"

namespace planq::cuda {

class Barrier {
 public:
  __device__ __forceinline__ void init(int arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(address()), "r"(arrivals)
                 : "memory");
  }
  // Arrives, and makes this phase wait for so many bytes, too.
  __device__ __forceinline__ void arrive_and_expect(int bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(address()),
                 "r"(bytes)
                 : "memory");
  }
  __device__ __forceinline__ void arrive() {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(address()) : "memory");
  }
  // Returns when the phase of this parity has ended. The phase before the first counts as ended, so
  // a wait for parity 1 on a new barrier returns at once.
  __device__ __forceinline__ void wait(int parity) {
#if PLANQ_HAS_CLUSTERS
    std::uint32_t done;
    do {
      asm volatile(
          "{.reg .pred p;"
          "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;"
          "selp.u32 %0, 1, 0, p;}"
          : "=r"(done)
          : "r"(address()), "r"(parity)
          : "memory");
    } while (done == 0);
#else
    while (!has_ended(parity)) {
    }
#endif
  }
  // Whether it has, without waiting.
  __device__ __forceinline__ bool has_ended(int parity) {
    std::uint32_t done;
    asm volatile(
        "{.reg .pred p;"
        "mbarrier.test_wait.parity.shared::cta.b64 p, [%1], %2;"
        "selp.u32 %0, 1, 0, p;}"
        : "=r"(done)
        : "r"(address()), "r"(parity)
        : "memory");
    return done != 0;
  }
  __device__ __forceinline__ std::uint32_t address() const { return shared_address(this); }

 private:
  std::uint64_t state_;
};

// Whether this lane is the one that acts for the warp, all of whose lanes are here. The compiler
// knows that there is one, and issues a copy of TMA for it without a loop over lanes.
__device__ __forceinline__ bool is_elected() {
#if PLANQ_HAS_CLUSTERS
  std::uint32_t elected;
  asm volatile(
      "{.reg .pred p;"
      "elect.sync _|p, 0xffffffff;"
      "selp.u32 %0, 1, 0, p;}"
      : "=r"(elected));
  return elected != 0;
#else
  return threadIdx.x % 32 == 0;
#endif
}

// Called after all init(), by the same thread, before the barrier of the block or cluster.
__device__ __forceinline__ void publish_barriers() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

// The next stage of a pipeline, and the parity of its phase.
template <int kStages>
struct StageCursor {
  int stage = 0;
  int parity = 0;

  StageCursor() = default;
  // After `count` stages.
  __device__ __forceinline__ explicit StageCursor(std::uint32_t count)
      : stage(count % kStages), parity(count / kStages & 1) {}
  __device__ __forceinline__ void advance() {
    if (++stage < kStages) return;
    stage = 0;
    parity ^= 1;
  }
};

// The same if the number of stages is known only at run time.
struct CountedCursor {
  int count;
  int stage = 0;
  int parity = 0;

  __device__ __forceinline__ explicit CountedCursor(int stages) : count(stages) {}
  __device__ __forceinline__ void advance() {
    if (++stage < count) return;
    stage = 0;
    parity ^= 1;
  }
};

// Waits for all threads of the cluster that have not ended. Then what they wrote before to shared
// and global memory is visible.
__device__ __forceinline__ void cluster_barrier() {
  __syncwarp();
  asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
  cluster_wait();
}
// The same without order of memory: for barriers that were published, and before a block gives its
// shared memory back.
__device__ __forceinline__ void cluster_barrier_unordered() {
  __syncwarp();
  cluster_arrive_unordered();
  cluster_wait();
}

// Loads a vector from the shared memory of block `rank`, where `address` is in this block. Called
// after a barrier of the cluster.
__device__ __forceinline__ uint4 load_from_block(std::uint32_t address, int rank) {
  uint4 v;
  asm volatile(
      "{.reg .b32 remote;"
      "mapa.shared::cluster.u32 remote, %4, %5;"
      "ld.shared::cluster.v4.u32 {%0, %1, %2, %3}, [remote];}"
      : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
      : "r"(address), "r"(rank));
  return v;
}

// The address in the shared memory of block `rank` of what is at `address` in this block.
__device__ __forceinline__ std::uint32_t address_in_block(std::uint32_t address, int rank) {
  std::uint32_t remote = address;
#if PLANQ_HAS_CLUSTERS
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(remote) : "r"(address), "r"(rank));
#endif
  return remote;
}
// Stores two numbers in another block, whose barrier then counts their eight bytes.
__device__ __forceinline__ void send_pair(std::uint32_t remote, float2 pair,
                                          std::uint32_t remote_barrier) {
#if PLANQ_HAS_CLUSTERS
  asm volatile(
      "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v2.b32 [%0], {%1, %2}, [%3];" ::
          "r"(remote),
      "r"(__float_as_uint(pair.x)), "r"(__float_as_uint(pair.y)), "r"(remote_barrier)
      : "memory");
#endif
}
// Arrives at a barrier of block `rank`. This publishes nothing that the thread has written.
__device__ __forceinline__ void arrive_in_block(const Barrier& barrier, int rank) {
#if PLANQ_HAS_CLUSTERS
  asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(
                   address_in_block(barrier.address(), rank))
               : "memory");
#endif
}

// A named barrier of `threads` threads of the block, which are whole warps. `name`: 1 to 15.
__device__ __forceinline__ void named_barrier_wait(int name, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(name), "r"(threads) : "memory");
}
__device__ __forceinline__ void named_barrier_arrive(int name, int threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(name), "r"(threads) : "memory");
}

// The same, which tells whether it holds for one of the threads.
__device__ __forceinline__ bool named_barrier_any(int name, int threads, bool holds) {
  int any;
  asm volatile(
      "{.reg .pred p, q;"
      "setp.ne.b32 p, %1, 0;"
      "barrier.red.or.pred q, %2, %3, p;"
      "selp.b32 %0, 1, 0, q;}"
      : "=r"(any)
      : "r"(static_cast<int>(holds)), "r"(name), "r"(threads)
      : "memory");
  return any != 0;
}

}  // namespace planq::cuda
