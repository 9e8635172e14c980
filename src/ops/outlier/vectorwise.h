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

// Of the whole tensor, and not of vectors along an axis.
PLANQ_HD constexpr bool is_whole(VectorwiseForm form) {
  return form == VectorwiseForm::Linear || form == VectorwiseForm::Zeropoint;
}
// With a zero point, by the range and not by the largest magnitude.
PLANQ_HD constexpr bool has_zero_point(VectorwiseForm form) {
  return form == VectorwiseForm::Zeropoint || form == VectorwiseForm::RowZeropoint ||
         form == VectorwiseForm::VectorZeropoint;
}
// Elements are divided by the statistic, where others are multiplied with a factor made of it.
PLANQ_HD constexpr bool is_divided(VectorwiseForm form) {
  return form == VectorwiseForm::Linear || form == VectorwiseForm::Truncated;
}
// The type of codes.
constexpr DType code_dtype(VectorwiseForm form) {
  return has_zero_point(form) ? DType::UInt8 : DType::Int8;
}

// The elements that share a statistic. A vector is all of an axis: a group of as many.
inline Scope scope_of(VectorwiseForm form, const Shape& shape, std::int64_t axis) {
  if (is_whole(form)) return {};
  const auto along = static_cast<int>(axis);
  return {ScopeKind::Group, along, std::max<std::int64_t>(shape[along], 1)};
}

// The shape of their statistics.
constexpr Rule statistic_shape() {
  return when(is("form", is_whole), 1,
              with_axis("shape", "axis", smaller_of(axis_of("shape", "axis"), 1)));
}

// What a segment has in memory: its statistic, and the zero point of those forms that have one.
template <class C>
struct Statistic {
  C scale;
  std::int32_t zero_point;
};

// Zero points up to this one leave the product with an element as exact as the element is.
template <class C>
inline constexpr C kLargestZeroPoint = sizeof(C) == 4 ? C(0x1p22) : C(0x1p30);

// From the ends of the segment's range; forms without a zero point have only `high`, the largest
// magnitude. An end that is not finite makes the statistic NaN.
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

// What the elements of a segment are quantized with.
template <class C>
struct Factors {
  C scale, factor, zero;
  bool product;  // by the factor; where that overflows, by division as in the other forms
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

// The code of an element before it is stored. A NaN is 0: it comes of a statistic that is NaN, or
// of one that is 0.
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

// The element that a code stands for. The difference is exact before it is rounded to C.
template <class C>
PLANQ_HD C vectorwise_element(VectorwiseForm form, std::int32_t code, C scale,
                              std::int32_t zero_point) {
  if (has_zero_point(form))
    return static_cast<C>(static_cast<std::int64_t>(code) - zero_point) / scale;
  const C share = static_cast<C>(code) / C(127);
  return share * scale;
}

}  // namespace planq::outlier
