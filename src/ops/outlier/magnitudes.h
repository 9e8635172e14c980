// Magnitudes of elements, and the rule for outliers. A magnitude is the bit pattern without the
// sign. As an integer it is ordered as the absolute value is, with NaN last. Maxima and counts of
// integers have the same bits in any order.
#pragma once

#include "core/dtype.h"
#include "math/formats.h"

namespace planq::outlier {

using std::int64_t;

// The element types that the operators take: those of LLM.int8.
inline constexpr DType kElements[] = {DType::Float16, DType::BFloat16, DType::Float32};

template <class T>
struct MagnitudeOf {
  using type = std::uint16_t;
};
template <>
struct MagnitudeOf<float> {
  using type = std::uint32_t;
};
template <class T>
using Magnitude = typename MagnitudeOf<T>::type;

template <class T>
inline constexpr Magnitude<T> kInfinity = 0x7F80;
template <>
inline constexpr Magnitude<math::Half> kInfinity<math::Half> = 0x7C00;
template <>
inline constexpr Magnitude<float> kInfinity<float> = 0x7F800000;

template <class T>
PLANQ_HD Magnitude<T> magnitude_of(T x) {
  if constexpr (sizeof(T) == 2)
    return x.bits & 0x7FFFu;
  else
    return math::bit_cast<std::uint32_t>(x) & 0x7FFFFFFFu;
}

// The element of this magnitude with a positive sign.
template <class T>
PLANQ_HD T element_of(Magnitude<T> magnitude) {
  if constexpr (sizeof(T) == 2)
    return T{magnitude};
  else
    return math::bit_cast<T>(magnitude);
}

// The bits of the float with this magnitude; they are ordered as magnitudes are. A NaN becomes the
// canonical NaN, which is above infinity.
template <class T>
PLANQ_HD std::uint32_t float_bits(Magnitude<T> magnitude) {
  if (magnitude > kInfinity<T>) return math::Ieee<float>::kNaN;
  return math::bit_cast<std::uint32_t>(math::widen(element_of<T>(magnitude)));
}

// Outliers are the magnitudes from `least` to infinity; a NaN is none.
template <class T>
struct OutlierRule {
  Magnitude<T> least = static_cast<Magnitude<T>>(~Magnitude<T>{0});

  PLANQ_HD bool takes(Magnitude<T> magnitude) const {
    return magnitude >= least && magnitude <= kInfinity<T>;
  }
  // Whether there can be any.
  PLANQ_HD bool any() const { return least <= kInfinity<T>; }
};

// The rule whose `least` is the smallest magnitude of at least `threshold`, compared as real
// numbers. With a threshold of 0 there are no outliers.
template <class T>
OutlierRule<T> outlier_rule(double threshold) {
  if (threshold == 0) return {};
  std::uint32_t low = 1, high = kInfinity<T>;
  while (low < high) {
    const std::uint32_t middle = low + (high - low) / 2;
    const float value = math::widen(element_of<T>(static_cast<Magnitude<T>>(middle)));
    if (static_cast<double>(value) >= threshold)
      high = middle;
    else
      low = middle + 1;
  }
  return {static_cast<Magnitude<T>>(low)};
}

// Outliers are counted for tiles of this many neighbouring columns of a row.
inline constexpr int kTileColumns = 256;
inline int64_t column_tiles(int64_t columns) {
  return columns / kTileColumns + (columns % kTileColumns != 0);
}

}  // namespace planq::outlier
