// The range of a segment whose vectors are in the registers of several threads: of a warp, of a
// block or of a cluster of blocks.
#pragma once

#include "cuda/launch.cuh"
#include "ops/affine/segments/encode.cuh"

namespace planq::affine {

enum class Team { Warp, Block };

inline constexpr int kRowThreads = 512;
inline constexpr int kWideRowThreads = 768;  // of the shape with one vector a thread
inline constexpr int kMaxClusterWarps = 8 * kRowThreads / cuda::kWarp;

template <class In, int kCount>
__device__ __forceinline__ KeyRange<In> key_range_of(const uint4 (&v)[kCount],
                                                     const bool (&active)[kCount], bool symmetric) {
  Collector<In> collector;
  if (symmetric) {
#pragma unroll
    for (int k = 0; k < kCount; ++k)
      if (active[k]) collector.add_magnitudes(v[k]);
  } else {
#pragma unroll
    for (int k = 0; k < kCount; ++k)
      if (active[k]) collector.add_ordered(v[k]);
  }
  return collector.key_range();
}

// Partial ranges of the warps of a segment, for two exchanges: of all elements and of the finite.
template <class In>
struct Exchange {
  KeyOf<In> low[2][kMaxClusterWarps], high[2][kMaxClusterWarps];
  cuda::Mailbox mail[2];  // of clusters
};
template <class In>
__device__ __forceinline__ Exchange<In>& exchange_of() {
  __shared__ Exchange<In> exchange;
  return exchange;
}

// The first thing that the blocks of a cluster do.
template <class In>
__device__ __forceinline__ void open_exchange(int cluster, bool symmetric) {
  if (threadIdx.x == 0) {
    const std::uint32_t keys = blockDim.x / cuda::kWarp * cluster * (symmetric ? 1 : 2);
    for (cuda::Mailbox& mail : exchange_of<In>().mail) mail.expect(keys * sizeof(KeyOf<In>));
  }
  cuda::cluster_arrive_unordered();
}

template <Team kTeam>
__device__ __forceinline__ int team_rank(int cluster) {
  if (kTeam == Team::Warp) return threadIdx.x % cuda::kWarp;
  return cluster > 1 ? cuda::cluster_rank() * blockDim.x + threadIdx.x : threadIdx.x;
}

// The range over the whole team. One barrier: every warp reduces the partial ranges itself.
template <Team kTeam, class In>
__device__ __forceinline__ KeyRange<In> team_key_range(int round, KeyRange<In> key_range,
                                                       int cluster, bool symmetric) {
  key_range = warp_key_range(key_range, symmetric);
  if constexpr (kTeam == Team::Warp) return key_range;
  Exchange<In>& exchange = exchange_of<In>();
  const int warps = blockDim.x / cuda::kWarp, warp = threadIdx.x / cuda::kWarp;
  const int lane = threadIdx.x % cuda::kWarp;
  if (cluster == 1) {
    if (lane == 0) {
      exchange.high[round][warp] = key_range.high;
      if (!symmetric) exchange.low[round][warp] = key_range.low;
    }
    __syncthreads();
  } else {
    // The first round also waits until every block of the cluster runs and expects its mail.
    if (round == 0) cuda::cluster_wait();
    cuda::Mailbox& mail = exchange.mail[round];
    if (lane < cluster) {
      const int place = cuda::cluster_rank() * warps + warp;
      mail.send(&exchange.high[round][place], lane, key_range.high);
      if (!symmetric) mail.send(&exchange.low[round][place], lane, key_range.low);
    }
    mail.wait();
  }
  KeyRange<In> all;
  const auto add = [&](int i) {
    all.high = max(all.high, exchange.high[round][i]);
    if (!symmetric) all.low = min(all.low, exchange.low[round][i]);
  };
  if (cluster == 1) {
    static_assert(kWideRowThreads / cuda::kWarp <= cuda::kWarp);
    if (lane < warps) add(lane);
  } else {
#pragma unroll 1
    for (int i = lane; i < warps * cluster; i += cuda::kWarp) add(i);
  }
  return warp_key_range(all, symmetric);
}

}  // namespace planq::affine
