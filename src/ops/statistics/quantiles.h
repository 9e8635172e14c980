// Order statistics: elements as unsigned integers of the same order, and the positions of
// quantiles. What both backends share.
#pragma once

#include "math/formats.h"

namespace planq::math {

// The key of an element. Negative values count down from the middle and others up, so that keys are
// ordered as values are, -0 right below +0. All NaN have the same key, the highest.
template <class T>
struct OrderKeyOf {
  using type = std::uint32_t;
};
template <>
struct OrderKeyOf<double> {
  using type = std::uint64_t;
};
template <class T>
using OrderKey = typename OrderKeyOf<T>::type;

template <class T>
inline constexpr int kOrderBits = sizeof(T) * 8;
template <class T>
inline constexpr OrderKey<T> kOrderSign = OrderKey<T>{1} << (kOrderBits<T> - 1);
template <class T>
inline constexpr OrderKey<T> kOrderNan = kOrderSign<T> - 1 + kOrderSign<T>;
// The pattern of infinity: of float and double that of Ieee.
template <class T>
inline constexpr OrderKey<T> kOrderInfinity = Ieee<T>::kInfinity;
template <>
inline constexpr std::uint32_t kOrderInfinity<Half> = 0x7C00;
template <>
inline constexpr std::uint32_t kOrderInfinity<Bfloat16> = 0x7F80;

template <class T>
PLANQ_HD OrderKey<T> order_key(T x) {
  OrderKey<T> bits;
  if constexpr (sizeof(T) == 2)
    bits = x.bits;
  else
    bits = bit_cast<OrderKey<T>>(x);
  const OrderKey<T> key = bits & kOrderSign<T> ? bits ^ kOrderNan<T> : bits | kOrderSign<T>;
  return (bits & ~kOrderSign<T>) > kOrderInfinity<T> ? kOrderNan<T> : key;
}

// The element that has this key, in the compute type; zeros are positive.
template <class T>
PLANQ_HD Compute<T> value_of_order(OrderKey<T> key) {
  const OrderKey<T> bits = key & kOrderSign<T> ? key ^ kOrderSign<T> : key ^ kOrderNan<T>;
  Compute<T> value;
  if constexpr (sizeof(T) == 2)
    value = widen(T{static_cast<std::uint16_t>(bits)});
  else
    value = bit_cast<T>(bits);
  return value == Compute<T>{0} ? Compute<T>{0} : value;
}

// The index of quantile `j` of `quantiles` among `count` > 0 elements in ascending order.
PLANQ_HD std::int64_t quantile_position(std::int64_t j, std::int64_t quantiles, double tail,
                                        std::int64_t count) {
  const double between = (static_cast<double>(j) * (1.0 - 2.0 * tail)) / (quantiles - 1.0);
  const double position = (tail + between) * static_cast<double>(count - 1);
  const double below = floor_of(position);
  // position - below is exact, so this rounds halves up.
  const auto index = static_cast<std::int64_t>(below) + (position - below >= 0.5 ? 1 : 0);
  return index < count ? index : count - 1;  // count - 1 itself may be rounded
}

}  // namespace planq::math
