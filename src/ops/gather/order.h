// Elements and their places as integers, the largest of which is what argmax and sample look for;
// and where indices go. For both backends.
#pragma once

#include <cstdint>
#include <limits>

#include "core/registry.h"
#include "math/ieee.h"

namespace planq::gather {

inline constexpr std::int32_t kNanOrder = std::numeric_limits<std::int32_t>::max();
// Below the key of every element.
inline constexpr std::int64_t kNoKey = std::numeric_limits<std::int64_t>::min();

// In the order of the numbers; both zeros are 0, and every NaN is above infinity.
PLANQ_HD std::int32_t order_of(float x) {
  const auto bits = math::bit_cast<std::int32_t>(x);
  const std::int32_t magnitude = bits & 0x7FFFFFFF, sign = bits >> 31;
  const std::int32_t order = (magnitude ^ sign) - sign;
  return magnitude > 0x7F800000 ? kNanOrder : order;
}

// The element of an order that no NaN has; of both zeros +0.
PLANQ_HD float value_of(std::int32_t order) {
  const std::int32_t sign = order >> 31;
  const auto magnitude = static_cast<std::uint32_t>((order ^ sign) - sign);
  return math::bit_cast<float>(magnitude | (static_cast<std::uint32_t>(sign) & 0x80000000u));
}

// The element decides, and of equal ones the lower index.
PLANQ_HD std::int64_t key_of(std::int32_t order, std::uint32_t index) {
  return static_cast<std::int64_t>(static_cast<std::uint64_t>(order) << 32 | (0xFFFFFFFFu - index));
}
PLANQ_HD std::int32_t order_in(std::int64_t key) { return static_cast<std::int32_t>(key >> 32); }
PLANQ_HD std::int64_t index_of(std::int64_t key) {
  return 0xFFFFFFFFu - static_cast<std::uint32_t>(key);
}

// Where indices go: numbers of 32 or 64 bits.
struct Indices {
  void* data;
  bool is_wide;

  explicit Indices(const OperandView& view, DType type)
      : data(view.data), is_wide(type == DType::Int64) {}
  PLANQ_HD void store(std::int64_t at, std::int64_t index) const {
    if (is_wide)
      static_cast<std::int64_t*>(data)[at] = index;
    else
      static_cast<std::int32_t*>(data)[at] = static_cast<std::int32_t>(index);
  }
};

}  // namespace planq::gather
