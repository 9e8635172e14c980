// The absmax of flat blocks as they are stored: numbers, or the codes of nested statistics.
#pragma once

#include "ops/codebook/arithmetic.h"

namespace planq {

struct BlockStatistics {
  const void* absmax = nullptr;  // one a block, or its code; null: there are none
  DType dtype = DType::Float32;
  std::int64_t nested_block_size = 0;  // 0: they are not nested
  const void *nested_absmax = nullptr, *nested_offset = nullptr;
  const float* nested_codebook = nullptr;

  template <class C>
  PLANQ_HD C at(std::int64_t block) const {
    if (nested_block_size == 0) return math::load_scale<C>(absmax, block, dtype);
    return math::restored_absmax(
        nested_codebook[static_cast<const std::uint8_t*>(absmax)[block]],
        math::load_scale<C>(nested_absmax, block / nested_block_size, dtype),
        math::load_scale<C>(nested_offset, 0, dtype));
  }
};

}  // namespace planq
