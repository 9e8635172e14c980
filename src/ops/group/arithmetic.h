// The formulas of DeepSpeed's group quantization, as corrected in docs/numerics/group.md: ranges of
// groups, what is stored of them, codes and values. Both backends call these functions.
#pragma once

#include "core/dtype.h"
#include "math/conversions.h"
#include "math/formats.h"

namespace planq::math {

// The larger and the smaller of two numbers; NaN where one is.
PLANQ_HD float larger(float a, float b) {
#if defined(__CUDA_ARCH__)
  float result;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(result) : "f"(a), "f"(b));
  return result;
#else
  return (a > b) | (a != a) ? a : b;
#endif
}
PLANQ_HD float smaller(float a, float b) {
#if defined(__CUDA_ARCH__)
  float result;
  asm("min.NaN.f32 %0, %1, %2;" : "=f"(result) : "f"(a), "f"(b));
  return result;
#else
  return (a < b) | (a != a) ? a : b;
#endif
}

// The smallest and the largest element of a group: exact in any order but for the sign of a zero,
// which measured_scale() does not look at.
struct GroupRange {
  float low = bit_cast<float>(Ieee<float>::kInfinity);
  float high = -bit_cast<float>(Ieee<float>::kInfinity);

  PLANQ_HD void add(float x) {
    low = smaller(x, low);
    high = larger(x, high);
  }
  // For a measure that is symmetric: the range is that of x and -x.
  PLANQ_HD void add_peak(float x) {
    high = larger(x < 0.0f ? -x : x, high);
    low = 0.0f;
  }
  PLANQ_HD void add(const GroupRange& other) {
    low = smaller(other.low, low);
    high = larger(other.high, high);
  }
};

// Symmetric and Asymmetric: int8 and int4 by DeepSpeed's convention. Intx: uint8 and uint4 by that
// of its INTx kernels, which round to the element type after each operation.
enum class GroupForm : std::uint8_t { Symmetric, Asymmetric, Intx };

struct GroupSpec {
  GroupForm form = GroupForm::Symmetric;
  int bits = 8;

  PLANQ_HD float half() const { return static_cast<float>(1 << (bits - 1)); }
  PLANQ_HD float lowest() const { return form == GroupForm::Intx ? 0.0f : -half(); }
  PLANQ_HD float highest() const {
    return form == GroupForm::Intx ? 2.0f * half() - 1.0f : half() - 1.0f;
  }
};

// How elements become codes: rne((x - offset) * factor). `stored` stands for the factor in memory.
struct GroupScale {
  float factor, offset, stored;
};

// What is stored of a group: multiplier and offset, or divisor and minimum.
struct GroupPair {
  float first, second;
};

// Of a group with a NaN or an infinity: codes 0, which decode to NaN.
PLANQ_HD GroupScale lost_group() { return {0.0f, 0.0f, canonical_nan<float>()}; }

template <class T>
PLANQ_HD float largest_of() {
  if constexpr (std::is_same_v<T, Half>) return 65504.0f;
  if constexpr (std::is_same_v<T, Bfloat16>) return 0x1.fep127f;
  return largest_finite<float>();
}

PLANQ_HD float capped(float value, float limit) { return value > limit ? limit : value; }

// A span that the element type does not hold has no divisor: its values could not be decoded.
template <class T>
PLANQ_HD GroupScale measured_intx(const GroupSpec& spec, float low, float high) {
  const float span = rounded_to<T>(high - low);
  if (!is_finite(span)) return lost_group();
  const float divisor =
      span == 0.0f ? 1.0f : capped(rounded_to<T>(spec.highest() / span), largest_of<T>());
  return {divisor, low, divisor};
}

template <class T>
PLANQ_HD GroupScale measured_scale(const GroupSpec& spec, const GroupRange& range) {
  const float low = range.low + 0.0f, high = range.high + 0.0f;  // -0 counts as 0
  if (!is_finite(low) || !is_finite(high)) return lost_group();
  if (spec.form == GroupForm::Intx) return measured_intx<T>(spec, low, high);
  const bool symmetric = spec.form == GroupForm::Symmetric;
  const float reach =
      symmetric ? larger(high, -low) : high * 0.5f - low * 0.5f;  // hi - lo could overflow
  const float offset = symmetric ? 0.0f : high * 0.5f + low * 0.5f;
  const float factor = reach == 0.0f ? 1.0f : capped(spec.half() / reach, largest_finite<float>());
  return {factor, offset, 1.0f / factor};
}

PLANQ_HD GroupScale given_scale(const GroupSpec& spec, const GroupPair& stored) {
  if (spec.form == GroupForm::Intx) return {stored.first, stored.second, stored.first};
  const float offset = spec.form == GroupForm::Symmetric ? 0.0f : stored.second;
  return {capped(1.0f / stored.first, largest_finite<float>()), offset, stored.first};
}

// NaN has the code 0.
template <class T, bool kIntx>
PLANQ_HD float group_code(const GroupSpec& spec, const GroupScale& scale, float x) {
  const float lifted = x - scale.offset;
  const float y =
      kIntx ? rounded_to<T>(rounded_to<T>(lifted) * scale.factor) : lifted * scale.factor;
  return rne(clamp(y == y ? y : 0.0f, spec.lowest(), spec.highest()));
}

// What a code stands for, before it is rounded to the element type.
template <class T>
PLANQ_HD float group_value(GroupForm form, const GroupPair& stored, float code) {
  if (form == GroupForm::Intx) return rounded_to<T>(code / stored.first) + stored.second;
  const float product = code * stored.first;
  return form == GroupForm::Symmetric ? product : product + stored.second;
}

// The sum over ranks with one more. kHalf: as DeepSpeed adds, rounded to float16 at every step.
template <bool kHalf>
PLANQ_HD float accumulated(float sum, float value) {
  if constexpr (kHalf) return rounded_to<Half>(sum + rounded_to<Half>(value));
  return sum + value;
}
template <bool kHalf>
PLANQ_HD float mean_of(float sum, float ranks) {
  const float mean = sum / ranks;
  if constexpr (kHalf) return rounded_to<Half>(mean);
  return mean;
}

// Error feedback: codes are made of a value plus the error that the codes of earlier steps left.
// kHalf: as DeepSpeed does, which rounds to float16 before and after the codes.
template <bool kHalf>
PLANQ_HD float with_error(float x, float error) {
  if constexpr (kHalf) return rounded_to<Half>(x + error);
  return x + error;
}

// How much stays of an error, and how much is added of what codes lose: beta and 1 - beta.
struct ErrorShares {
  float kept = 0.0f, lost = 1.0f;
};

// `decoded`: what the codes of `wanted` stand for.
template <bool kHalf>
PLANQ_HD float error_after(const ErrorShares& shares, float error, float wanted, float decoded) {
  if constexpr (kHalf) decoded = rounded_to<Half>(decoded);
  return shares.kept * error + shares.lost * (wanted - decoded);
}

}  // namespace planq::math
