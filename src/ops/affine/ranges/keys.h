// Elements as integers of the same order: what the loops of loops.h and their drivers share.
#pragma once

#include <cstdint>
#include <limits>

#include "math/formats.h"

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
template <class K>
constexpr Keys<K> no_keys(bool signs) {
  using Limits = std::numeric_limits<K>;
  return {Limits::max(), signs ? Limits::min() : K{-1}};
}

// Lines of `length` consecutive elements, `stride` elements apart.
struct KeyLines {
  std::int64_t length = 0, count = 0, stride = 0;
};

// The loops for one element type and one kind of keys, which include elements in ranges; the input
// that will be wanted next lies `ahead` bytes further.
template <class K>
struct RangeLoops {
  // Line i in low[i * step] and high[i * step]; step is 0 or 1.
  void (*lines)(const void* x, KeyLines lines, int step, std::int64_t ahead, K* low, K* high);
  // Column j of all lines in low[j] and high[j].
  void (*columns)(const void* x, KeyLines lines, std::int64_t ahead, K* low, K* high);
};

}  // namespace planq::host
