// Elements as integers of the same order: what the loops of range_kernels.h and their drivers
// share.
#pragma once

#include <cstdint>
#include <limits>

#include "math/codec.h"

namespace planq::host {

// A key is a bit pattern read as an integer. Symmetric: the magnitude. Otherwise: negative values
// mirrored, so that keys are ordered as the values are, and every NaN and infinity is outside the
// keys of the finite values.
template <class T>
struct KeyOf {
  using type = std::int16_t;
};
template <>
struct KeyOf<float> {
  using type = std::int32_t;
};
template <>
struct KeyOf<double> {
  using type = std::int64_t;
};
template <class T>
using Key = typename KeyOf<T>::type;

template <class T>
inline constexpr Key<T> kMagnitude = std::numeric_limits<Key<T>>::max();
template <class T>
inline constexpr Key<T> kInfinityKey = 0;
template <>
inline constexpr std::int16_t kInfinityKey<math::Half> = 0x7C00;
template <>
inline constexpr std::int16_t kInfinityKey<math::Bfloat16> = 0x7F80;
template <>
inline constexpr std::int32_t kInfinityKey<float> = 0x7F800000;
template <>
inline constexpr std::int64_t kInfinityKey<double> = 0x7FF0000000000000;

// Of the elements seen so far. Symmetric keys leave `low` alone.
template <class K>
struct Keys {
  K low, high;

  void add(const Keys& other) {
    low = other.low < low ? other.low : low;
    high = other.high > high ? other.high : high;
  }
};

// No element: any replaces it.
template <class T>
constexpr Keys<Key<T>> no_keys(bool signs) {
  using K = Key<T>;
  return {kMagnitude<T>, signs ? std::numeric_limits<K>::min() : K{-1}};
}

// Rows of `length` consecutive elements, `stride` elements apart.
struct KeyRows {
  std::int64_t length = 0, count = 0, stride = 0;
};

// The loops for one element type and one kind of keys; the input that will be wanted next lies
// `ahead` bytes further.
template <class T>
struct RangeLoops {
  // One result for each row.
  void (*rows)(const T* x, KeyRows rows, std::int64_t ahead, Keys<Key<T>>* keys);
  // Includes the elements of column j in low[j] and high[j].
  void (*columns)(const T* x, KeyRows rows, std::int64_t ahead, Key<T>* low, Key<T>* high);
};

}  // namespace planq::host
