// GGML's blocks Q8_0 and Q4_0: the arithmetic of docs/numerics/affine.md, for both backends.
#pragma once

#include <cstdint>

#include "math/formats.h"
#include "math/ieee.h"

namespace planq::math {

// The numbers of a block, out of its peak: Q8_0 the largest magnitude, Q4_0 the first element of
// that magnitude, with its sign.
struct GgmlBlock {
  float scale;    // before it is rounded to float16
  float inverse;  // of the scale as computed; 0 where there is none

  PLANQ_HD GgmlBlock(float peak, float steps) : scale(peak / steps), inverse(1.0f / scale) {
    if (scale == 0.0f || !is_finite(inverse)) inverse = 0.0f;
  }
};

inline constexpr float kQ8Steps = 127.0f, kQ4Steps = -8.0f;

// Half away from zero; steps below 0.5 apart are exact, so neither the doubling nor the sum rounds.
PLANQ_HD std::int32_t q8_code(float x, float inverse) {
  const float product = x * inverse;
  const float magnitude = product < 0.0f ? -product : product;
  const float whole = floor_of(magnitude);
  const float rounded = whole + floor_of(2.0f * (magnitude - whole));
  return static_cast<std::int32_t>(product < 0.0f ? -rounded : rounded);
}

// Half up, by a sum that rounds; the code is that of an int4.
PLANQ_HD std::int32_t q4_code(float x, float inverse) {
  const float sum = x * inverse + 8.5f;
  const std::int32_t steps = static_cast<std::int32_t>(sum);
  return (steps > 15 ? 15 : steps) - 8;
}

}  // namespace planq::math
