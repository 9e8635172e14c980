// The arithmetic of norms, as docs/numerics/norm.md has it. rms_norm is layer_norm with a mean of
// +0, whose subtraction changes no number.
#pragma once

#include <cstdint>

#include "math/conversions.h"
#include "math/functions.h"
#include "math/tree_sum.h"

namespace planq::math {

// Adds nothing to any number, -0 among them: what threads without an element give to a sum.
inline constexpr float kNoTerm = -0.0f;

// The sum of `count` terms, up to kSumLeaf^2, from their sum without the +0 that fill runs of
// kSumLeaf, and the list of runs, up to powers of two: one of nothing but -0 becomes +0 by them.
PLANQ_HD float filled_sum(float sum, std::int64_t count) {
  const std::int64_t runs = (count + kSumLeaf - 1) / kSumLeaf;
  const std::int64_t last = count - (runs - 1) * kSumLeaf;
  const bool has_fill = (runs & (runs - 1)) != 0 || (last & (last - 1)) != 0;
  return has_fill ? sum + 0.0f : sum;
}

PLANQ_HD float squared_distance(float x, float mean) {
  const float distance = x - mean;
  return distance * distance;
}

// How many numbers a mean is of, up to 2^24: those are exact.
class Length {
 public:
  Length() = default;
  PLANQ_HD explicit Length(std::int64_t length)
      : length_(static_cast<float>(length)),
        inverse_((length & (length - 1)) == 0 ? 1.0f / length_ : 0.0f) {}

  // The sum divided. The product with the inverse of a power of two is rounded from the same
  // number, and takes fewer instructions.
  PLANQ_HD float mean(float sum) const { return inverse_ != 0 ? sum * inverse_ : sum / length_; }

 private:
  float length_, inverse_;
};

// What distances from the mean are multiplied by. A sum of squares is never -0: filled_sum() would
// not change it.
PLANQ_HD float norm_factor(float squares, const Length& length, float eps) {
  return rsqrt(length.mean(squares) + eps);
}

PLANQ_HD float normalized(float x, float mean, float factor) { return (x - mean) * factor; }

}  // namespace planq::math
