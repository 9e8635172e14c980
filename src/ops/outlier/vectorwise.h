// The forms of vectorwise quantization: which elements share a statistic, what it is, and how an
// element becomes a code and back. Scalar functions that both backends call;
// docs/numerics/outlier.md has the formulas.
#pragma once

#include <algorithm>
#include <cstdint>

#include "core/scope.h"
#include "math/formats.h"
#include "ops/outlier/vocabulary.h"

namespace planq::outlier {

// Whether the form has one statistic for the whole tensor, and not one per vector along an axis.
PLANQ_HD constexpr bool is_whole(VectorwiseForm form) {
  return form == VectorwiseForm::Linear || form == VectorwiseForm::Zeropoint;
}
// Whether the form has zero points: it then uses the range and not the largest magnitude.
PLANQ_HD constexpr bool has_zero_point(VectorwiseForm form) {
  return form == VectorwiseForm::Zeropoint || form == VectorwiseForm::RowZeropoint ||
         form == VectorwiseForm::VectorZeropoint;
}
// Whether elements are divided by the statistic. Other forms multiply by a factor computed from it.
PLANQ_HD constexpr bool is_divided(VectorwiseForm form) {
  return form == VectorwiseForm::Linear || form == VectorwiseForm::Truncated;
}
// The type of codes.
constexpr DType code_dtype(VectorwiseForm form) {
  return has_zero_point(form) ? DType::UInt8 : DType::Int8;
}

// The elements that share a statistic. A vector spans its whole axis: a group of that size.
inline Scope scope_of(VectorwiseForm form, const Shape& shape, std::int64_t axis) {
  if (is_whole(form)) return {};
  const auto along = static_cast<int>(axis);
  return {ScopeKind::Group, along, std::max<std::int64_t>(shape[along], 1)};
}

// The shape of the statistics.
constexpr Rule statistic_shape() {
  return when(is("form", is_whole), 1,
              with_axis("shape", "axis", smaller_of(axis_of("shape", "axis"), 1)));
}

// The parameters of a segment; zero_point is 0 in forms without one.
template <class C>
struct Statistic {
  C scale;
  std::int32_t zero_point;
};

// The largest zero point: adding it to the product of an element loses no precision of the element.
template <class C>
inline constexpr C kLargestZeroPoint = sizeof(C) == 4 ? C(0x1p22) : C(0x1p30);

// Computes the parameters from the ends of the segment's range. Forms without a zero point have
// only `high`, the largest magnitude. If an end is not finite, the scale is NaN.
template <class C>
PLANQ_HD Statistic<C> statistic_of(VectorwiseForm form, C low, C high) {
  using math::is_finite;
  if (!has_zero_point(form)) {
    if (!is_finite(high)) return {math::canonical_nan<C>(), 0};
    return {form == VectorwiseForm::Truncated ? high * C(0.7) : high, 0};
  }
  if (!is_finite(low) || !is_finite(high)) return {math::canonical_nan<C>(), 0};
  const C below = low < C{0} ? -low : low, above = high < C{0} ? -high : high;
  const C largest = below > above ? below : above;
  if (largest == C{0}) return {C(255), 0};
  const C span = high - low;
  C scale = is_finite(span) ? C(255) / span : C(127.5) / (high * C(0.5) - low * C(0.5));
  const C bound = kLargestZeroPoint<C> / largest;
  if (!(scale < bound)) scale = bound;
  if (!is_finite(scale)) scale = math::largest_finite<C>();
  return {scale, -static_cast<std::int32_t>(math::rne(low * scale))};
}

// The numbers that the elements of a segment are quantized with.
template <class C>
struct Factors {
  C scale, factor, zero;
  bool product;  // multiply by the factor; if that overflows, divide as other forms do
};

template <class C>
PLANQ_HD C factor_of(C scale) {
  return C(127) / scale;
}
template <class C>
PLANQ_HD Factors<C> factors_of(VectorwiseForm form, C scale, std::int32_t zero_point) {
  const C factor = factor_of(scale);
  return {scale, factor, static_cast<C>(zero_point), !is_divided(form) && math::is_finite(factor)};
}

// The code of an element as an integer. A NaN has the code 0; it comes from a statistic that is NaN
// or 0.
template <class C>
PLANQ_HD std::int32_t vectorwise_code(VectorwiseForm form, C x, const Factors<C>& factors) {
  C value;
  if (has_zero_point(form)) {
    value = x * factors.scale;
    value = value + factors.zero;
  } else if (factors.product) {
    value = x * factors.factor;
  } else {
    const C clipped = math::clamp(x, -factors.scale, factors.scale);
    value = clipped / factors.scale;
    value = value * C(127);
  }
  if (!(value == value)) return 0;
  const C lowest = has_zero_point(form) ? C(0) : C(-127);
  const C highest = has_zero_point(form) ? C(255) : C(127);
  return static_cast<std::int32_t>(math::clamp(math::rne(value), lowest, highest));
}

// The dequantized element. The difference is an exact integer before it is rounded to C.
template <class C>
PLANQ_HD C vectorwise_element(VectorwiseForm form, std::int32_t code, C scale,
                              std::int32_t zero_point) {
  if (has_zero_point(form))
    return static_cast<C>(static_cast<std::int64_t>(code) - zero_point) / scale;
  const C share = static_cast<C>(code) / C(127);
  return share * scale;
}

}  // namespace planq::outlier
