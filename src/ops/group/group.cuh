// Groups on CUDA: a team of threads, of a power of two, has a group to itself. What the kernels of
// the family are made of.
#pragma once

#include "cuda/element_places.cuh"
#include "cuda/launch.cuh"
#include "cuda/pairs.cuh"
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

// GroupMemory::load() and store() with the hint of all other accesses.
template <class T>
__device__ __forceinline__ math::GroupPair load_pair(const GroupMemory<T>& memory,
                                                     math::GroupForm form, std::int64_t group) {
  if (form == math::GroupForm::Intx)
    return {math::widened(load_single(memory.scale + group)),
            math::widened(load_single(memory.minimum + group))};
  const float* row = memory.rows + group * memory.row_stride;
  return {load_single(row), form == math::GroupForm::Symmetric ? 0.0f : load_single(row + 1)};
}
template <class T>
__device__ __forceinline__ void store_pair(const GroupMemory<T>& memory, math::GroupForm form,
                                           std::int64_t group, const math::GroupScale& value) {
  if (form == math::GroupForm::Intx) {
    store_single(memory.scale + group, math::narrow<T>(value.stored));
    store_single(memory.minimum + group, math::narrow<T>(value.offset));
    return;
  }
  float* row = memory.rows + group * memory.row_stride;
  store_single(row, value.stored);
  if (form == math::GroupForm::Asymmetric) store_single(row + 1, value.offset);
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

// Both rounded to the element type on the way.
template <class T>
__device__ __forceinline__ void round_pair(float (&pair)[2]) {
  if constexpr (sizeof(T) == 2) {
    const std::uint32_t both = pair_of(pair[0], pair[1], T{});
    pair[0] = of_pair<T>(both, 0);
    pair[1] = of_pair<T>(both, 1);
  }
}

// math::group_code() of two elements by fewer instructions, in the order of memory: numbers are
// bounded as integers, after they are rounded, and a NaN is the integer 0.
template <class T, bool kIntx, bool kNibble>
__device__ __forceinline__ std::uint32_t encode_group_pair(const math::GroupScale& scale, float x,
                                                           float y, std::uint32_t above) {
  float pair[2] = {x - scale.offset, y - scale.offset};
  if constexpr (kIntx) round_pair<T>(pair);
  pair[0] *= scale.factor;
  pair[1] *= scale.factor;
  if constexpr (kIntx) round_pair<T>(pair);
  if constexpr (kNibble)
    return codes_of_pair<!kIntx, 4>(pair[1], pair[0], above);
  else
    return codes_of_pair<!kIntx, 8>(pair[0], pair[1], above);
}

// Elements as codes, in words as they lie in memory. T: the type that DEEPSPEED_INTX rounds to.
template <class T, bool kIntx, bool kNibble, int kCount, int kWords>
__device__ __forceinline__ void encode_group_words(const math::GroupScale& scale,
                                                   const float (&values)[kCount],
                                                   std::uint32_t (&words)[kWords]) {
  constexpr int kPerWord = kNibble ? 8 : 4;
  static_assert(kWords == (kCount + kPerWord - 1) / kPerWord);
#pragma unroll
  for (int i = 0; i < kWords; ++i) {
    words[i] = 0;
#pragma unroll
    for (int j = (kCount < kPerWord ? kCount : kPerWord) - 2; j >= 0; j -= 2)
      words[i] = encode_group_pair<T, kIntx, kNibble>(scale, values[i * kPerWord + j],
                                                      values[i * kPerWord + j + 1], words[i]);
  }
}

template <class T, bool kIntx, bool kNibble>
__device__ __forceinline__ GroupWord<T, kNibble> encode_group_vector(
    const math::GroupScale& scale, const float (&values)[kGroupVector<T>]) {
  using Codes = GroupWord<T, kNibble>;
  std::uint32_t words[sizeof(Codes) == 8 ? 2 : 1];
  encode_group_words<T, kIntx, kNibble>(scale, values, words);
  if constexpr (sizeof(Codes) == 8)
    return static_cast<Codes>(words[1]) << 32 | words[0];
  else
    return static_cast<Codes>(words[0]);
}

// The number of a code's low bits.
template <bool kNibble>
__device__ __forceinline__ float code_number(math::GroupForm form, std::uint32_t bits) {
  constexpr int kBits = kNibble ? 4 : 8;
  const int code = static_cast<int>(bits & ((1u << kBits) - 1));
  constexpr int kSign = 1 << (kBits - 1);
  return static_cast<float>(form == math::GroupForm::Intx ? code : (code ^ kSign) - kSign);
}

// Codes by DEEPSPEED as numbers, in fewer instructions than math::group_value(), and with its bits.
// With u = q + half, fl(q p) = fl(u 2^-24 * p 2^24 - half p), by a fused multiplication and
// addition that rounds once, since both factors and half p are exact. u 2^-24 is the subnormal
// float16 whose bits are u, and a word has two of those after one instruction.
template <bool kNibble>
class GroupNumbers {
 public:
  static constexpr int kPerWord = kNibble ? 8 : 4;

  // Of what is_ordinary().
  __device__ __forceinline__ explicit GroupNumbers(const math::GroupPair& stored)
      : low_(stored.first * 0x1p24f),
        high_(stored.first * 0x1p20f),
        shift_(stored.first * (kNibble ? -8.0f : -128.0f)) {}

  // Whether the factors above are finite and a product is never -0, nor a sum with the offset NaN.
  __device__ __forceinline__ static bool is_ordinary(math::GroupForm form,
                                                     const math::GroupPair& stored) {
    return form != math::GroupForm::Intx && stored.first > 0.0f && stored.first < 0x1p100f &&
           math::is_finite(stored.second);
  }

  // fl(q p) of all codes of a word.
  __device__ __forceinline__ void of_word(std::uint32_t word, float (&products)[kPerWord]) const {
#pragma unroll
    for (int odd = 0; odd < 2; ++odd) {
      const std::uint32_t bytes = word >> 8 * odd;
      if constexpr (kNibble) {
        put(masked_and_flipped(bytes, 0x00F000F0u, 0x00800080u), high_, 2 * odd, products);
        put(masked_and_flipped(bytes, 0x000F000Fu, 0x00080008u), low_, 2 * odd + 1, products);
      } else {
        put(masked_and_flipped(bytes, 0x00FF00FFu, 0x00800080u), low_, odd, products);
      }
    }
  }

 private:
  __device__ __forceinline__ void put(std::uint32_t halves, float factor, int first,
                                      float (&products)[kPerWord]) const {
#pragma unroll
    for (int i = 0; i < 2; ++i)
      products[first + i * kPerWord / 2] =
          __fmaf_rn(of_pair<math::Half>(halves, i), factor, shift_);
  }

  float low_, high_, shift_;  // of codes in the low and the high half of a byte
};

}  // namespace planq::cuda
