// In the place of src/ops/codebook/absmax.cuh.
#pragma once

#include "math/ieee.h"

namespace planq::cuda {

inline float larger_magnitude(float a, float b) {
  const std::uint32_t first = math::magnitude_bits(a), second = math::magnitude_bits(b);
  return math::bit_cast<float>(first > second ? first : second);
}

}  // namespace planq::cuda
