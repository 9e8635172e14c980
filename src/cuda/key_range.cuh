// The range of elements as a pair of integers. Elements become signed keys of the same order as
// their values (symmetric: magnitudes), so that maxima are exact in any order, and NaN > Inf >
// finite follows from the bit patterns.
#pragma once

#include <cstdint>
#include <limits>

#include "cuda/pairs.cuh"
#include "cuda/reduce.cuh"
#include "math/formats.h"
#include "math/ieee.h"

namespace planq::cuda {

using math::Bfloat16;
using math::Compute;
using math::Half;

template <class In>
inline constexpr int kPerVector = kVectorBytes / static_cast<int>(sizeof(In));

template <class In>
using KeyOf = std::conditional_t<sizeof(In) == 8, std::int64_t, std::int32_t>;

template <class In>
inline constexpr KeyOf<In> kInfinityKey = 0;
template <>
inline constexpr std::int32_t kInfinityKey<Half> = 0x7C00;
template <>
inline constexpr std::int32_t kInfinityKey<Bfloat16> = 0x7F80;
template <>
inline constexpr std::int32_t kInfinityKey<float> = 0x7F800000;
template <>
inline constexpr std::int64_t kInfinityKey<double> = 0x7FF0000000000000;

// The bits of an element, sign-extended to its key type.
template <class In>
__device__ __forceinline__ KeyOf<In> signed_bits(In x) {
  if constexpr (sizeof(In) == 2) return static_cast<std::int16_t>(x.bits);
  if constexpr (sizeof(In) == 4) return math::bit_cast<std::int32_t>(x);
  if constexpr (sizeof(In) == 8) return math::bit_cast<std::int64_t>(x);
}
template <class In>
inline constexpr KeyOf<In> kMagnitudeMask =
    sizeof(In) == 2 ? 0x7FFF : std::numeric_limits<KeyOf<In>>::max();

template <class In>
__device__ __forceinline__ KeyOf<In> key_of(In x, bool symmetric) {
  const KeyOf<In> bits = signed_bits(x);
  const KeyOf<In> flips = bits >> (sizeof(bits) * 8 - 1) & kMagnitudeMask<In>;
  return symmetric ? bits & kMagnitudeMask<In> : bits ^ flips;
}

// The element whose key this is, in the compute type.
template <class In>
__device__ __forceinline__ Compute<In> value_of(KeyOf<In> key) {
  const KeyOf<In> bits = key ^ (key >> (sizeof(key) * 8 - 1) & kMagnitudeMask<In>);
  if constexpr (sizeof(In) == 2)
    return math::widen(In{static_cast<std::uint16_t>(bits)});
  else
    return math::bit_cast<Compute<In>>(bits);
}

// Keys of the smallest and the largest element; no element: low > high. Symmetric uses `high` only.
template <class In>
struct KeyRange {
  using Key = KeyOf<In>;
  Key low = std::numeric_limits<Key>::max();
  Key high = std::numeric_limits<Key>::min();

  __device__ __forceinline__ void add(Key key) {
    low = key < low ? key : low;
    high = key > high ? key : high;
  }
  __device__ __forceinline__ void add(const KeyRange& other) {
    low = other.low < low ? other.low : low;
    high = other.high > high ? other.high : high;
  }
  __device__ __forceinline__ bool special() const {
    return high >= kInfinityKey<In> || low <= ~kInfinityKey<In>;
  }
};

template <class In>
__device__ __forceinline__ bool is_special(KeyOf<In> key) {
  return key >= kInfinityKey<In> || key <= ~kInfinityKey<In>;
}

// Adds an element, or only if it is finite.
template <class In>
__device__ __forceinline__ void add_element(KeyRange<In>& key_range, In x, bool symmetric,
                                            bool finite) {
  const KeyOf<In> key = key_of(x, symmetric);
  if (!(finite && is_special<In>(key))) key_range.add(key);
}

// --- Vectors of 16 bytes -----------------------------------------------------------------------

// Element i (a compile-time constant after unrolling) of a vector, in the compute type.
template <class In>
__device__ __forceinline__ Compute<In> element_of(const uint4& v, int i) {
  const std::uint32_t words[4] = {v.x, v.y, v.z, v.w};
  if constexpr (sizeof(In) == 2)
    return of_pair<In>(words[i / 2], i & 1);
  else if constexpr (std::is_same_v<In, float>)
    return __uint_as_float(words[i]);
  else
    return __hiloint2double(static_cast<int>(words[2 * i + 1]), static_cast<int>(words[2 * i]));
}

// 0xFFFF in the place of each half that is NaN or infinite, 0 elsewhere: adding 0x8000 minus the
// bits of infinity to a magnitude sets its sign bit exactly from infinity on, and never carries
// into the next half.
template <class In>
__device__ __forceinline__ std::uint32_t special_halves(std::uint32_t word) {
  constexpr std::uint32_t kLack = 0x8000u - static_cast<std::uint32_t>(kInfinityKey<In>);
  return signs_of_halves((word & 0x7FFF7FFFu) + kLack * 0x00010001u);
}

// Smallest and largest key of the elements that were added; of 16-bit elements two at a time, in
// the halves of a word. With kFinite, NaN and infinities are left out.
template <class In>
class Collector {
 public:
  template <bool kFinite = false>
  __device__ __forceinline__ void add_magnitudes(const uint4& v) {
    const std::uint32_t words[4] = {v.x, v.y, v.z, v.w};
    if constexpr (sizeof(In) == 2) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const std::uint32_t special = kFinite ? special_halves<In>(words[i]) : 0;
        high_ = __vmaxs2(high_, without(words[i] & 0x7FFF7FFFu, special, kNone));
      }
    } else {
#pragma unroll
      for (int i = 0; i < kPerVector<In>; ++i) {
        const KeyOf<In> key = key_of(element_of<In>(v, i), true);
        if (kFinite && is_special<In>(key)) continue;
        key_range_.high = key > key_range_.high ? key : key_range_.high;
      }
    }
  }
  template <bool kFinite = false>
  __device__ __forceinline__ void add_ordered(const uint4& v) {
    const std::uint32_t words[4] = {v.x, v.y, v.z, v.w};
    if constexpr (sizeof(In) == 2) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const std::uint32_t keys = words[i] ^ (signs_of_halves(words[i]) & 0x7FFF7FFFu);
        const std::uint32_t special = kFinite ? special_halves<In>(words[i]) : 0;
        high_ = __vmaxs2(high_, without(keys, special, kNone));
        low_ = __vmins2(low_, without(keys, special, ~kNone));
      }
    } else {
#pragma unroll
      for (int i = 0; i < kPerVector<In>; ++i) {
        const KeyOf<In> key = key_of(element_of<In>(v, i), false);
        if (!(kFinite && is_special<In>(key))) key_range_.add(key);
      }
    }
  }
  template <int kCount>
  __device__ __forceinline__ void add(const uint4 (&v)[kCount], const bool (&active)[kCount],
                                      bool symmetric, bool finite) {
    const auto each = [&](const auto& add_one) {
#pragma unroll
      for (int k = 0; k < kCount; ++k)
        if (active[k]) add_one(v[k]);
    };
    if (symmetric)
      finite ? each([&](const uint4& one) { add_magnitudes<true>(one); })
             : each([&](const uint4& one) { add_magnitudes(one); });
    else
      finite ? each([&](const uint4& one) { add_ordered<true>(one); })
             : each([&](const uint4& one) { add_ordered(one); });
  }
  __device__ __forceinline__ KeyRange<In> key_range() const {
    if constexpr (sizeof(In) == 2) {
      KeyRange<In> key_range;
      if (high_ == kNone && low_ == ~kNone) return key_range;
      key_range.high = max(half(high_, 0), half(high_, 16));
      key_range.low = min(half(low_, 0), half(low_, 16));
      return key_range;
    } else {
      return key_range_;
    }
  }

 private:
  static constexpr std::uint32_t kNone = 0x80008000u;
  __device__ __forceinline__ static std::int32_t half(std::uint32_t word, int shift) {
    return static_cast<std::int16_t>(word >> shift);
  }
  // The keys, those replaced by `none` whose bits are set in `special`.
  __device__ __forceinline__ static std::uint32_t without(std::uint32_t keys, std::uint32_t special,
                                                          std::uint32_t none) {
    return (keys & ~special) | (none & special);
  }
  std::uint32_t high_ = kNone, low_ = ~kNone;  // 16-bit elements
  KeyRange<In> key_range_;                     // others
};

// --- Across lanes ------------------------------------------------------------------------------

template <class In>
__device__ __forceinline__ KeyRange<In> subwarp_key_range(KeyRange<In> key_range, int width,
                                                          bool symmetric) {
  key_range.high = subwarp_max(key_range.high, width);
  if (!symmetric) key_range.low = ~subwarp_max(~key_range.low, width);
  return key_range;
}
template <class In>
__device__ __forceinline__ KeyRange<In> warp_key_range(KeyRange<In> key_range, bool symmetric) {
  key_range.high = warp_max(key_range.high);
  if (!symmetric) key_range.low = ~warp_max(~key_range.low);
  return key_range;
}

}  // namespace planq::cuda
