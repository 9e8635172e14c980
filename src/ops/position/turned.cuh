// Heads of queries and keys in the registers of a team of threads: read, normalised, turned, and
// rounded. The file that includes this names the type of the elements: see cuda/element.cuh.
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "cuda/element.cuh"
#include "cuda/neighbours.cuh"
#include "cuda/tree_sum.cuh"
#include "math/conversions.h"
#include "ops/norm/arithmetic.h"
#include "ops/position/heads.h"

namespace planq::position {
namespace {

using cuda::Element;
using cuda::kWarp;

constexpr int kVector = cuda::kVectorBytes / static_cast<int>(sizeof(Element));

__device__ __forceinline__ Element nan_element() {
  return math::narrow<Element>(math::canonical_nan<float>());
}

// Brings the weights of a norm to L2, of queries and keys, by a warp each.
__device__ __forceinline__ void prefetch_weights(const Heads& heads) {
  constexpr int kLineBytes = 128;
  static_assert(kMostColumns * 4 <= kWarp * kLineBytes);
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int at = static_cast<int>(threadIdx.x) % kWarp * kLineBytes;
  const void* const weights = warp == 0 ? heads.query.weight : heads.key.weight;
  const int size = heads.weight_dtype == DType::Float32 ? 4 : 2;
  if (warp < 2 && weights && at < heads.columns * size)
    cuda::prefetch(static_cast<const char*>(weights) + at);
}

// What the instruction that rounds two numbers makes of a NaN, in the place of the canonical one.
__device__ __forceinline__ std::uint32_t with_canonical_nans(std::uint32_t word) {
  constexpr std::uint32_t kMade = 0x7FFF;
  const std::uint32_t own = std::is_same_v<Element, math::Half> ? 0x7E00u : 0x7FC0u;
  if ((word & 0xFFFFu) == kMade) word = (word & 0xFFFF0000u) | own;
  if (word >> 16 == kMade) word = (word & 0xFFFFu) | own << 16;
  return word;
}

// Rounds neighbours: two by one instruction, where there are 16 bits to each.
template <int kEach>
__device__ __forceinline__ void round_neighbours(const float (&x)[kEach],
                                                 cuda::Neighbours<Element, kEach>& to) {
#if defined(__CUDA_ARCH__)
  if constexpr (sizeof(Element) == 2 && kEach % 2 == 0) {
    std::uint32_t words[kEach / 2];
    bool has_nan = false;
#pragma unroll
    for (int i = 0; i < kEach; i += 2) {
      if constexpr (std::is_same_v<Element, math::Half>)
        asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(words[i / 2]) : "f"(x[i + 1]), "f"(x[i]));
      else
        asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(words[i / 2]) : "f"(x[i + 1]), "f"(x[i]));
      has_nan = has_nan || x[i] != x[i] || x[i + 1] != x[i + 1];
    }
    if (has_nan)
#pragma unroll
      for (int i = 0; i < kEach / 2; ++i) words[i] = with_canonical_nans(words[i]);
    memcpy(to.each, words, sizeof words);
  } else
#endif
#pragma unroll
    for (int i = 0; i < kEach; ++i) to.each[i] = math::narrowed<Element>(x[i]);
}

// Which columns of a head a thread has: two runs of kEach neighbours, half of the turned columns
// apart; of single elements, a pair.
template <int kEach>
struct Unit {
  int index, half;
  bool is_interleaved;

  __device__ __forceinline__ int column(int run) const {
    if (kEach == 1 && is_interleaved) return 2 * index + run;
    return run * half + index * kEach;
  }
};

// The angles of a unit's pairs.
template <int kEach>
struct Angles {
  float cosines[kEach], sines[kEach];

  __device__ __forceinline__ void load(const float* table, const Unit<kEach>& unit) {
    if (kEach > 1 && unit.is_interleaved) {
      load_halves(table, unit, std::integral_constant<bool, (kEach > 1)>());
    } else {
      load_run(table + unit.index * kEach, unit.half, 0, std::integral_constant<int, kEach>());
    }
  }

 private:
  // kCount pairs that follow one another.
  template <int kCount>
  __device__ __forceinline__ void load_run(const float* from, int half, int first,
                                           std::integral_constant<int, kCount>) {
    cuda::Neighbours<float, kCount> own, behind;
    own.load(from);
    behind.load(from + half);
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      cosines[first + i] = own.each[i];
      sines[first + i] = behind.each[i];
    }
  }
  // Each run of neighbours is half as many pairs.
  __device__ __forceinline__ void load_halves(const float* table, const Unit<kEach>& unit,
                                              std::true_type) {
    constexpr std::integral_constant<int, kEach / 2> kCount;
    load_run(table + unit.column(0) / 2, unit.half, 0, kCount);
    load_run(table + unit.column(1) / 2, unit.half, kEach / 2, kCount);
  }
  __device__ __forceinline__ void load_halves(const float*, const Unit<kEach>&, std::false_type) {}
};

// A thread's columns of a head: kRuns runs, of which the first two are turned.
template <int kEach, int kRuns = 2>
struct HeadRuns {
  cuda::Neighbours<Element, kEach> runs[kRuns];

  __device__ __forceinline__ void load(const Element* row, const Unit<kEach>& unit) {
#pragma unroll
    for (int run = 0; run < kRuns; ++run) runs[run].load(row + unit.column(run));
  }
  __device__ __forceinline__ void store(Element* row, const Unit<kEach>& unit) const {
#pragma unroll
    for (int run = 0; run < kRuns; ++run) runs[run].store(row + unit.column(run));
  }
  __device__ __forceinline__ void lose() {
#pragma unroll
    for (int run = 0; run < kRuns; ++run)
#pragma unroll
      for (int i = 0; i < kEach; ++i) runs[run].each[i] = nan_element();
  }
  __device__ __forceinline__ void turn(const Angles<kEach>& angles, bool is_interleaved) {
    float x[2][kEach];
    widen(0, x[0]);
    widen(1, x[1]);
    if (kEach > 1 && is_interleaved) {
#pragma unroll
      for (int i = 0; i + 1 < 2 * kEach; i += 2)
        turn_pair(x[i / kEach][i % kEach], x[i / kEach][(i + 1) % kEach], angles, i / 2);
    } else {
#pragma unroll
      for (int i = 0; i < kEach; ++i) turn_pair(x[0][i], x[1][i], angles, i);
    }
    round_neighbours(x[0], runs[0]);
    round_neighbours(x[1], runs[1]);
  }
  // Of a head that `lanes` neighbouring threads have, a power of two up to a warp, all columns
  // together. All threads of the warp call this.
  __device__ __forceinline__ void normalize(const Heads& heads, const void* weights,
                                            const Unit<kEach>& unit, int lanes, float eps) {
    const float factor = math::norm_factor(sum_of_squares(lanes), heads.length, eps);
    const DType weight_dtype = heads.weight_dtype;
    if (weight_dtype == DType::BFloat16)
      scale(factor, static_cast<const math::Bfloat16*>(weights), unit);
    else if (weight_dtype == DType::Float16)
      scale(factor, static_cast<const math::Half*>(weights), unit);
    else
      scale(factor, static_cast<const float*>(weights), unit);
  }

 private:
  __device__ __forceinline__ void widen(int run, float (&x)[kEach]) const {
#pragma unroll
    for (int i = 0; i < kEach; ++i) x[i] = math::widened(runs[run].each[i]);
  }
  __device__ __forceinline__ static void turn_pair(float& a, float& b, const Angles<kEach>& angles,
                                                   int pair) {
    const math::TurnedPair made = math::turned(a, b, angles.cosines[pair], angles.sines[pair]);
    a = made.a;
    b = made.b;
  }
  // Runs are equal parts of the tree, and threads of a run are neighbours in it.
  __device__ __forceinline__ float sum_of_squares(int lanes) const {
    const cuda::AddNeighbours join;
    float sums[kRuns];
#pragma unroll
    for (int run = 0; run < kRuns; ++run) {
      float x[kEach];
      widen(run, x);
#pragma unroll
      for (int i = 0; i < kEach; ++i) x[i] = x[i] * x[i];
      sums[run] = cuda::join_neighbours(x, join);
    }
#pragma unroll 1
    for (int step = 1; step < lanes; step *= 2)
#pragma unroll
      for (int run = 0; run < kRuns; ++run)
        sums[run] = join(sums[run], __shfl_xor_sync(cuda::kAllLanes, sums[run], step));
    return cuda::join_neighbours(sums, join);
  }
  template <class T>
  __device__ __forceinline__ void scale(float factor, const T* weights, const Unit<kEach>& unit) {
#pragma unroll
    for (int run = 0; run < kRuns; ++run) {
      float x[kEach];
      widen(run, x);
      cuda::Neighbours<T, kEach> own;
      own.load(weights + unit.column(run));
#pragma unroll
      for (int i = 0; i < kEach; ++i) x[i] = (x[i] * factor) * (math::widened(own.each[i]) + 0.0f);
      round_neighbours(x, runs[run]);
    }
  }
};

}  // namespace

// --- From a call to a launch ---------------------------------------------------------------------

// Whether teams of threads have all columns that are turned as whole vectors of the two halves.
inline bool has_turned_vectors(const Heads& heads, const HeadOperands& own, bool has_key) {
  constexpr int kSize = sizeof(cuda::Element);
  constexpr std::int64_t kEach = cuda::kVectorBytes / kSize;
  const auto whole = [&](const OperandView& view, std::int64_t columns, int size) {
    return cuda::has_whole_words(view, columns * size, size, cuda::kVectorBytes);
  };
  const std::int64_t half = heads.rotary / 2;
  return half % kEach == 0 && whole(own.query, heads.rotary, kSize) &&
         (!has_key || whole(own.key, heads.rotary, kSize)) && whole(own.cos_sin, half, 4);
}
// In how many runs a team of at most a warp has all columns of a head; 0: it cannot.
inline int count_runs(std::int64_t columns, std::int64_t rotary) {
  constexpr std::int64_t kEach = cuda::kVectorBytes / sizeof(cuda::Element);
  const std::int64_t half = rotary / 2, lanes = half / kEach;
  if (half % kEach != 0 || lanes != cuda::power_of_two(lanes) || lanes > cuda::kWarp) return 0;
  for (const int runs : {2, 4, 8})
    if (columns == runs * half) return runs;
  return 0;
}
// Whether the weights of a norm lie as vectors.
inline bool has_weight_vectors(const HeadOperands& own, DType dtype, bool has_key) {
  constexpr int kEach = cuda::kVectorBytes / static_cast<int>(sizeof(cuda::Element));
  const int word = std::min(kEach * (dtype == DType::Float32 ? 4 : 2), cuda::kVectorBytes);
  return cuda::aligned_to(own.query_weight.data, word) &&
         (!has_key || cuda::aligned_to(own.key_weight.data, word));
}

}  // namespace planq::position
