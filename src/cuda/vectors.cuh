// Extremes of vectors of 16-bit elements, and values of several sets that lanes share.
#pragma once

#include "cuda/pairs.cuh"

namespace planq::cuda {

// The largest element in the low half and minus the smallest in the high half, so that pair_max()
// goes on from here.
template <class T, int kCount>
__device__ __forceinline__ std::uint32_t pair_extremes(const uint4 (&v)[kCount]) {
  std::uint32_t high = v[0].x, low = v[0].x;
#pragma unroll
  for (int k = 0; k < kCount; ++k) {
    const std::uint32_t words[4] = {v[k].x, v[k].y, v[k].z, v[k].w};
#pragma unroll
    for (int i = k == 0 ? 1 : 0; i < 4; ++i) {
      high = pair_max<T>(high, words[i]);
      low = pair_min<T>(low, words[i]);
    }
  }
  const std::uint32_t minus_low = low ^ 0x80008000u;
  return pair_max<T>(__byte_perm(high, minus_low, 0x5410), __byte_perm(high, minus_low, 0x7632));
}

// kSets values over sets of `lanes` lanes, as one or two words each. Lane r of a set gets the
// whole of value r % kSets: every step halves what a lane still carries, until it carries one.
template <int kSets, class Word, class Larger>
__device__ __forceinline__ Word scattered(Word (&values)[kSets], int lane, int lanes,
                                          const Larger& larger) {
#pragma unroll
  for (int left = kSets / 2, bit = 1; left > 0; left /= 2, bit *= 2) {
    const bool upper = lane & bit;
#pragma unroll
    for (int i = 0; i < left; ++i) {
      const Word given = upper ? values[2 * i] : values[2 * i + 1];
      const Word kept = upper ? values[2 * i + 1] : values[2 * i];
      values[i] = larger(kept, __shfl_xor_sync(kAllLanes, given, bit));
    }
  }
  for (int bit = kSets; bit < lanes; bit <<= 1)
    values[0] = larger(values[0], __shfl_xor_sync(kAllLanes, values[0], bit));
  return values[0];
}

}  // namespace planq::cuda
