// Elements and their places as integers, the largest of which is what argmax looks for; and where
// rows and their results lie. For both backends.
#pragma once

#include <cstdint>
#include <limits>

#include "core/index_space.h"
#include "math/ieee.h"
#include "ops/gather/argmax/desc.h"

namespace planq::argmax {

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

// The element decides, and of equal ones the lower index.
PLANQ_HD std::int64_t key_of(std::int32_t order, std::uint32_t index) {
  return static_cast<std::int64_t>(static_cast<std::uint64_t>(order) << 32 | (0xFFFFFFFFu - index));
}
PLANQ_HD std::int64_t index_of(std::int64_t key) {
  return 0xFFFFFFFFu - static_cast<std::uint32_t>(key);
}

struct Rows {
  IndexSpaceOf<2> space;  // of input and output
  std::int64_t length;
  void* output;
  bool is_wide;  // indices of 64 bits

  explicit Rows(const Call& call)
      : length(call.fields<Fields>().shape.last()),
        output(call.operands[kOutput].data),
        is_wide(call.fields<Fields>().output_dtype == DType::Int64) {
    const Shape& shape = call.fields<Fields>().shape;
    for (int axis = 0; axis + 1 < shape.rank; ++axis) {
      const auto own = static_cast<std::size_t>(axis);
      space.append({shape[axis],
                    1,
                    0,
                    {call.operands[kInput].strides[own], call.operands[kOutput].strides[own]}});
    }
    space.merge();
  }
  std::int64_t size() const { return space.size(); }

  PLANQ_HD void store(std::int64_t at, std::int64_t key) const {
    if (is_wide)
      static_cast<std::int64_t*>(output)[at] = index_of(key);
    else
      static_cast<std::int32_t*>(output)[at] = static_cast<std::int32_t>(index_of(key));
  }
};

}  // namespace planq::argmax
