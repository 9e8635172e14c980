// Groups on CUDA: a team of threads, of a power of two, has a group to itself. What the kernels of
// the family are made of.
#pragma once

#include "cuda/launch.cuh"
#include "cuda/memory_access.cuh"
#include "ops/codebook/element_places.cuh"
#include "ops/group/group.h"

namespace planq::cuda {

inline constexpr int kTeamThreads = 256;  // of a block of several teams
inline constexpr int kMostLanes = 1024;   // of a team; one of more than a warp is a whole block
// Of a block of such teams.
inline unsigned threads_for(std::int64_t lanes) {
  return static_cast<unsigned>(lanes > kWarp ? lanes : kTeamThreads);
}

// Of a team with so much work, and of a block of such teams.
inline std::int64_t lanes_for(std::int64_t work) {
  return std::min<std::int64_t>(power_of_two(std::min<std::int64_t>(work, kMostLanes)), kMostLanes);
}
inline unsigned threads_for(std::int64_t lanes) {
  return static_cast<unsigned>(lanes > kWarp ? lanes : kTeamThreads);
}

template <class T>
inline constexpr int kGroupVector = kVectorBytes / static_cast<int>(sizeof(T));

// The range of the whole team from those of its threads. All threads of the block call this.
__device__ __forceinline__ math::GroupRange team_range(math::GroupRange range, int lanes) {
  for (int step = min(lanes, kWarp) >> 1; step > 0; step >>= 1)
    range.add(math::GroupRange{__shfl_xor_sync(kAllLanes, range.low, step),
                               __shfl_xor_sync(kAllLanes, range.high, step)});
  if (lanes <= kWarp) return range;
  __shared__ float lows[kMostLanes / kWarp], highs[kMostLanes / kWarp];
  __syncthreads();  // a team may have come here before
  if (threadIdx.x % kWarp == 0) {
    lows[threadIdx.x / kWarp] = range.low;
    highs[threadIdx.x / kWarp] = range.high;
  }
  __syncthreads();
  for (int warp = 0; warp < lanes / kWarp; ++warp)
    range.add(math::GroupRange{lows[warp], highs[warp]});
  return range;
}

// The elements of a vector in the compute type.
template <class T>
__device__ __forceinline__ void widen_group_vector(const uint4& vector,
                                                   float (&values)[kGroupVector<T>]) {
  T each[kGroupVector<T>];
  memcpy(each, &vector, sizeof each);
#pragma unroll
  for (int j = 0; j < kGroupVector<T>; ++j) values[j] = math::widened(each[j]);
}

// Codes of a vector, as they lie in memory.
template <class T, bool kNibble>
using GroupWord = Word<kGroupVector<T> / (kNibble ? 2 : 1)>;

// How far code j is shifted in the word: of two that share a byte, the first has the upper half.
template <bool kNibble>
__device__ __forceinline__ int code_shift(int j) {
  return kNibble ? 4 * (j ^ 1) : 8 * j;
}

template <class T, bool kIntx, bool kNibble>
__device__ __forceinline__ GroupWord<T, kNibble> encode_group_vector(
    const math::GroupSpec& spec, const math::GroupScale& scale,
    const float (&values)[kGroupVector<T>]) {
  using Codes = GroupWord<T, kNibble>;
  Codes word = 0;
#pragma unroll
  for (int j = 0; j < kGroupVector<T>; ++j) {
    const int code = static_cast<int>(math::group_code<T, kIntx>(spec, scale, values[j]));
    word |= static_cast<Codes>(static_cast<Codes>(code & (kNibble ? 15 : 255))
                               << code_shift<kNibble>(j));
  }
  return word;
}

// The number of a code's low bits.
template <bool kNibble>
__device__ __forceinline__ float code_number(math::GroupForm form, std::uint32_t bits) {
  constexpr int kBits = kNibble ? 4 : 8;
  const int code = static_cast<int>(bits & ((1u << kBits) - 1));
  constexpr int kSign = 1 << (kBits - 1);
  return static_cast<float>(form == math::GroupForm::Intx ? code : (code ^ kSign) - kSign);
}

}  // namespace planq::cuda
