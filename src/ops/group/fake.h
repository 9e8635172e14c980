// DeepSpeed's fake quantization of flat groups, as corrected in docs/numerics/group.md: what is
// computed of a group and of its elements, and how long groups are shared out. Both backends call
// these functions.
#pragma once

#include <algorithm>
#include <cstdint>

#include "core/flat.h"
#include "core/scope.h"
#include "ops/group/arithmetic.h"

namespace planq {
namespace math {

struct FakeSpec {
  float low, high;  // of codes
  float levels;     // 2^bits
  float eps;
  bool symmetric;

  FakeSpec() = default;
  FakeSpec(Mode mode, std::int64_t bits, double epsilon)
      : levels(static_cast<float>(1 << bits)),
        eps(static_cast<float>(epsilon)),
        symmetric(mode == Mode::Symmetric) {
    low = symmetric ? -0.5f * levels : 0.0f;
    high = low + levels - 1.0f;
  }
};

// What a group's elements are computed with. SYMMETRIC: `factor` is s, `step` is 1 / s.
// ASYMMETRIC: `step` is d, `factor` is 1 / d, `base` is l.
struct FakeScale {
  float factor, step, base;
  float fold, unfold;  // k and 1 / k
};

PLANQ_HD FakeScale symmetric_fake(const FakeSpec& spec, float reach) {
  const float half = reach + spec.eps * 0.5f;  // 2 M + eps could overflow
  const float factor =
      half == 0.0f ? 1.0f : capped(spec.levels * 0.5f / half, largest_finite<float>());
  return {factor, 1.0f / factor, 0.0f, 1.0f, 1.0f};
}

// A width that float32 does not hold is folded to its half, and so are the group's elements.
PLANQ_HD FakeScale asymmetric_fake(const FakeSpec& spec, float low, float high) {
  const bool folded = !is_finite(high - low);
  const float fold = folded ? 0.5f : 1.0f;
  const float base = low * fold, width = high * fold - base;
  const float measured = (width + spec.eps * fold) / spec.levels;
  const float step = measured == 0.0f ? 1.0f : measured;
  return {capped(1.0f / step, largest_finite<float>()), step, base, fold, folded ? 2.0f : 1.0f};
}

// Of a group with a NaN or an infinity everything is NaN.
PLANQ_HD FakeScale measured_fake(const FakeSpec& spec, const GroupRange& range) {
  const float low = range.low + 0.0f, high = range.high + 0.0f;  // -0 counts as 0
  const float nan = canonical_nan<float>();
  if (!is_finite(low) || !is_finite(high)) return {nan, nan, nan, 1.0f, 1.0f};
  return spec.symmetric ? symmetric_fake(spec, larger(high, -low))
                        : asymmetric_fake(spec, low, high);
}

// Of numbers between -2^22 and 2^22; none becomes -0.
PLANQ_HD float toward_zero(float x) { return static_cast<float>(static_cast<std::int32_t>(x)); }
// Of numbers from 0 to 2^22. The difference is exact.
PLANQ_HD float half_up(float x) {
  const float nearest = rne(x);
  return x - nearest == 0.5f ? nearest + 1.0f : nearest;
}
PLANQ_HD float magnitude(float x) { return bit_cast<float>(magnitude_bits(x)); }

// What becomes of an element, before it is rounded to its type. `uniform`: its random number.
template <bool kStochastic>
PLANQ_HD float symmetric_faked(const FakeSpec& spec, const FakeScale& scale, float x,
                               float uniform) {
  const float place = clamp(x * scale.factor, spec.low, spec.high);
  if constexpr (!kStochastic) return (rne(place) + 0.0f) * scale.step;
  const float code = toward_zero(place);
  const float share = magnitude(x - code / scale.factor) * scale.factor;
  const bool moves = (uniform < share) & (spec.low < code) & (code < spec.high);
  const float farther = code + (x < 0.0f ? -1.0f : 1.0f);
  return (moves ? farther : code) / scale.factor;
}
template <bool kStochastic>
PLANQ_HD float asymmetric_faked(const FakeSpec& spec, const FakeScale& scale, float x,
                                float uniform) {
  const float folded = x * scale.fold, lifted = folded - scale.base;
  float code;
  if constexpr (kStochastic) {
    const float lower = toward_zero(clamp(lifted / scale.step, spec.low, spec.high));
    const float share = magnitude(folded - (lower * scale.step + scale.base)) / scale.step;
    code = (uniform < share) & (lower < spec.high) ? lower + 1.0f : lower;
  } else {
    code = half_up(clamp(lifted * scale.factor, spec.low, spec.high));
  }
  return (code * scale.step + scale.base) * scale.unfold;
}
template <bool kSymmetric, bool kStochastic>
PLANQ_HD float faked(const FakeSpec& spec, const FakeScale& scale, float x, float uniform) {
  if constexpr (kSymmetric) return symmetric_faked<kStochastic>(spec, scale, x, uniform);
  return asymmetric_faked<kStochastic>(spec, scale, x, uniform);
}

}  // namespace math

// A tensor's groups, and the parts that a long one has, so that several workers share it: first
// each part is measured, then each is computed with the range of all.
struct FakeGroups {
  static constexpr std::int64_t kPart = 1 << 14, kMostParts = 1 << 10;
  static constexpr std::int64_t kUnit = 16;  // elements; parts begin at whole vectors

  std::int64_t elements, size, groups, part, parts;

  FakeGroups() = default;
  FakeGroups(const Shape& shape, std::int64_t group_size)
      : elements(shape.elements()), size(group_size), groups(groups_of(elements, group_size)) {
    const std::int64_t longest = std::min(size, elements);
    const std::int64_t even = groups_of(groups_of(longest, kMostParts), kUnit) * kUnit;
    part = std::max(kPart, even);
    parts = std::max<std::int64_t>(groups_of(longest, part), 1);
  }

  // Ranges that are kept between both steps; of a tensor with fewer elements there are not more.
  std::int64_t kept_ranges() const {
    const std::int64_t longest = std::min(size, elements);
    return longest <= kPart ? 0 : groups * std::min(groups_of(longest, kPart), kMostParts);
  }

  constexpr BlockSpan group_span(std::int64_t group) const {
    return block_span(group, size, elements);
  }
  // Of a part; none where the last group is too short for it.
  constexpr BlockSpan part_span(std::int64_t group, std::int64_t index) const {
    const BlockSpan whole = group_span(group);
    const std::int64_t length = whole.last - whole.first, begin = index * part;
    if (begin >= length) return {whole.last, whole.last};
    const BlockSpan inside = block_span(index, part, length);
    return {whole.first + inside.first, whole.first + inside.last};
  }
};

}  // namespace planq
