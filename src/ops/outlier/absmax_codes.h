// From the largest magnitude of a row or a column to the int8 codes of its elements: affine's
// symmetric rule with -127 to 127, where a row or column with a NaN has the codes 0.
#pragma once

#include "ops/affine/scale.h"
#include "ops/outlier/magnitudes.h"

namespace planq::outlier {

inline constexpr float kMostCode = 127.0f;

inline math::AffineSpec<float> code_spec(Quotient quotient) {
  return math::affine_spec<float>(DType::Int8, DType::Float32, Mode::Symmetric, quotient,
                                  NonFinite::Propagate, false, -127, 127);
}

// The scale that the elements of a row or column are divided by, and its inverse for products. Both
// are NaN if the largest magnitude is not finite.
struct CodeFactor {
  float scale, inverse;
};
PLANQ_HD CodeFactor code_factor(const math::AffineSpec<float>& spec, float absmax) {
  const math::Range<float> range = {0.0f, absmax, !math::is_finite(absmax)};
  const auto parameters = math::segment_parameters(spec, range);
  return {parameters.scale, parameters.inverse};
}

// The low byte is the code of a quotient: math::integer_code without branches. A NaN, which a NaN
// factor leaves, has the code 0. Clamping to integers commutes with rounding, so it comes first.
// Adding 1.5 * 2^23 leaves the nearest integer, ties to even, in the low bits of the sum.
PLANQ_HD std::uint32_t code_bits(float quotient) {
  const float number = quotient == quotient ? quotient : 0.0f;
  return math::bit_cast<std::uint32_t>(math::clamp(number, -kMostCode, kMostCode) + 12582912.0f);
}

}  // namespace planq::outlier
