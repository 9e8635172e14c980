// Floating sums of products to the bit: what the tensor cores of sm_90 compute, in integers, and
// sums in 32 lanes. docs/numerics/linear.md has the formulas and says how they were measured.
//
// A tensor core does not add like IEEE. One step adds the products of a group and an accumulator at
// once, each product truncated to a unit that the largest of them has. So neither the order inside
// a group nor which factor comes first changes a bit; the order of groups does.
#pragma once

#include "math/ieee.h"

namespace planq::math {

// The arithmetic of one instruction: how many products it adds, how many fraction bits of them it
// keeps below the largest exponent, and how many fraction bits its results have.
template <int kTerms, int kKept, int kResult>
struct TensorCore {
  static constexpr int kGroup = kTerms, kFraction = kKept, kOut = kResult;
};
using TensorCore16 = TensorCore<16, 25, 23>;  // float16, bfloat16
using TensorCore8 = TensorCore<32, 13, 13>;   // float8_e4m3fn, float8_e5m2

// The least exponent that a group is aligned to.
inline constexpr int kTensorCoreFloor = -133;
// Terms that are added up on their own before they meet the sum so far.
inline constexpr int kTensorCoreSlice = 128;
// The NaN that a tensor core writes.
inline constexpr std::uint32_t kTensorCoreNan = 0x7FFFFFFFu;

// Factors of one side, widened to float32, which is exact. What follows takes any class with these
// members.
struct FactorRow {
  const float* values;
  int smallest;           // exponent of the smallest normal number of the type they come from
  std::int64_t step = 1;  // from a factor to the next

  PLANQ_HD float operator[](std::int64_t index) const { return values[index * step]; }
  PLANQ_HD FactorRow from(std::int64_t index) const {
    return {values + index * step, smallest, step};
  }
};

namespace detail {

// A finite number without its sign, as a tensor core takes it apart: significand times 2^(exponent
// - 23), and not normalised below the smallest exponent of its type.
struct Parts {
  std::uint32_t significand;
  int exponent;
};

PLANQ_HD bool is_negative(float x) { return bit_cast<std::uint32_t>(x) >> 31 != 0; }

PLANQ_HD Parts parts_of(float x, int smallest) {
  const std::uint32_t magnitude = magnitude_bits(x);
  const std::uint32_t field = magnitude >> 23;
  const std::uint32_t implicit = field == 0 ? 0 : 1u << 23;
  const Parts parts{(magnitude & 0x7FFFFFu) | implicit, static_cast<int>(field ? field : 1) - 127};
  if (parts.exponent >= smallest || parts.significand == 0) return parts;
  return {parts.significand >> (smallest - parts.exponent), smallest};
}

// Factors have 11 significant bits at most, so 13 of a float's 24 are zero.
PLANQ_HD Parts product_of(float a, int smallest_a, float b, int smallest_b) {
  const Parts first = parts_of(a, smallest_a), second = parts_of(b, smallest_b);
  return {(first.significand >> 13) * (second.significand >> 13), first.exponent + second.exponent};
}

// significand * 2^left, truncated. What is not 0 is shifted by less than 6 to the left; the
// exponent of a zero says nothing.
PLANQ_HD std::int64_t shifted(std::uint32_t significand, int left) {
  if (significand == 0) return 0;
  if (left >= 0) return static_cast<std::int64_t>(significand) << left;
  return left > -32 ? significand >> -left : 0;
}

PLANQ_HD int highest_bit(std::uint64_t word) {
#if defined(__CUDA_ARCH__)
  return 63 - __clzll(static_cast<long long>(word));
#else
  return 63 - __builtin_clzll(word);
#endif
}

// sum * 2^unit, truncated to `out` fraction bits; there are no smaller ones below 2^-126. Zero has
// no sign, whatever is truncated to it.
PLANQ_HD float truncated(std::int64_t sum, int unit, int out) {
  if (sum == 0) return 0.0f;
  std::uint64_t magnitude = static_cast<std::uint64_t>(sum < 0 ? -sum : sum);
  const int top = highest_bit(magnitude) + unit;
  const int exponent = top < -126 ? -126 : top;
  const std::uint32_t sign = sum < 0 ? Ieee<float>::kSign : 0;
  if (exponent > 127) return bit_cast<float>(sign | Ieee<float>::kInfinity);
  const int lost = exponent - out - unit;
  magnitude = lost > 0 ? magnitude >> lost : magnitude << -lost;
  if (magnitude == 0) return 0.0f;
  // The implicit one adds the exponent's first step; a subnormal has none.
  const std::uint32_t base = static_cast<std::uint32_t>(exponent + 126) << 23;
  return bit_cast<float>(sign | (base + (static_cast<std::uint32_t>(magnitude) << (23 - out))));
}

// What infinities and NaNs among the addends come to.
struct Specials {
  bool nan = false, positive = false, negative = false;

  PLANQ_HD void add(float x) {
    if (is_finite(x)) return;
    nan |= is_nan(x);
    (is_negative(x) ? negative : positive) = true;
  }
  PLANQ_HD void add(float a, float b) {
    if (is_finite(a) && is_finite(b)) return;
    nan |= is_nan(a) || is_nan(b) || magnitude_bits(a) == 0 || magnitude_bits(b) == 0;
    (is_negative(a) != is_negative(b) ? negative : positive) = true;
  }
  PLANQ_HD bool any() const { return nan || positive || negative; }
  PLANQ_HD float value() const {
    if (nan || (positive && negative)) return bit_cast<float>(kTensorCoreNan);
    return bit_cast<float>(Ieee<float>::kInfinity | (negative ? Ieee<float>::kSign : 0));
  }
};

}  // namespace detail

// One step: accumulator + sum of a[i] b[i] over at most a group of terms. What a group lacks would
// be zeros, which take no part.
template <class Core, class A = FactorRow, class B = A>
PLANQ_HD float tensor_core_step(float accumulator, A a, B b, int terms) {
  detail::Specials specials;
  specials.add(accumulator);
  const detail::Parts before = detail::parts_of(accumulator, -126);
  int largest = kTensorCoreFloor;
  if (before.significand != 0 && before.exponent > largest) largest = before.exponent;
  for (int i = 0; i < terms; ++i) {
    specials.add(a[i], b[i]);
    const detail::Parts product = detail::product_of(a[i], a.smallest, b[i], b.smallest);
    if (product.significand != 0 && product.exponent > largest) largest = product.exponent;
  }
  if (specials.any()) return specials.value();
  // A product has 20 fraction bits, the accumulator 23.
  const int unit = largest - Core::kFraction;
  std::int64_t sum = detail::shifted(before.significand, before.exponent - 23 - unit);
  if (detail::is_negative(accumulator)) sum = -sum;
  for (int i = 0; i < terms; ++i) {
    const detail::Parts product = detail::product_of(a[i], a.smallest, b[i], b.smallest);
    const std::int64_t part = detail::shifted(product.significand, product.exponent - 20 - unit);
    sum += detail::is_negative(a[i]) != detail::is_negative(b[i]) ? -part : part;
  }
  return detail::truncated(sum, unit, Core::kOut);
}

// Steps over ascending groups, from an accumulator on.
template <class Core, class A = FactorRow, class B = A>
PLANQ_HD float tensor_core_chain(float accumulator, A a, B b, std::int64_t terms) {
  for (std::int64_t i = 0; i < terms; i += Core::kGroup) {
    const std::int64_t left = terms - i;
    accumulator =
        tensor_core_step<Core>(accumulator, a.from(i), b.from(i),
                               left < Core::kGroup ? static_cast<int>(left) : Core::kGroup);
  }
  return accumulator;
}

// Accumulation::TensorSm90: slices, each a chain from +0, which `join(sum, slice, its number)` adds
// to the sum of those before it.
template <class Core, class A, class B, class Join>
PLANQ_HD float tensor_core_sum(A a, B b, std::int64_t terms, const Join& join) {
  float sum = 0;
  for (std::int64_t i = 0; i < terms; i += kTensorCoreSlice) {
    const std::int64_t left = terms - i;
    sum = join(sum,
               tensor_core_chain<Core>(0.0f, a.from(i), b.from(i),
                                       left < kTensorCoreSlice ? left : kTensorCoreSlice),
               i / kTensorCoreSlice);
  }
  return sum;
}

// Added up in IEEE's way.
struct PlainSlices {
  PLANQ_HD float operator()(float sum, float slice, std::int64_t) const { return sum + slice; }
};
template <class Core, class A = FactorRow, class B = A>
PLANQ_HD float tensor_core_sum(A a, B b, std::int64_t terms) {
  return tensor_core_sum<Core>(a, b, terms, PlainSlices{});
}

// --- Accumulation::GroupsSm90 --------------------------------------------------------------------

// Terms of a run, which is a chain of its own and has one scale: at most so many.
inline constexpr int kMostRunTerms = 128;
// Sums of runs, each over a part of the terms, before they are added up.
inline constexpr int kSpans = 8;

// The terms of a span: whole runs, and as many in each but the last ones. It depends on the number
// of terms alone, so that whoever splits them has the same bits.
PLANQ_HD std::int64_t span_terms(std::int64_t terms) {
  constexpr std::int64_t kRound = std::int64_t{kSpans} * kMostRunTerms;
  return (terms + kRound - 1) / kRound * kMostRunTerms;
}

// Runs of `run` terms, a chain each, meet their scales, scale_of(the first term), as they are added
// to the sum of a span. Then spans are added up. A sum is never -0, so that spans without terms,
// which would add +0, change nothing.
template <class Core, class A, class B, class ScaleOf>
PLANQ_HD float grouped_sum(A a, B b, std::int64_t terms, int run, const ScaleOf& scale_of) {
  const std::int64_t span = span_terms(terms);
  float sum = 0;
  for (std::int64_t first = 0; first < terms; first += span) {
    const std::int64_t end = first + span < terms ? first + span : terms;
    float part = 0;
    for (std::int64_t k = first; k < end; k += run) {
      const float chain =
          tensor_core_chain<Core>(0.0f, a.from(k), b.from(k), end - k < run ? end - k : run);
      part = fused(chain, scale_of(k), part);
    }
    sum = sum + part;
  }
  return sum;
}

// --- Accumulation::Lanes -------------------------------------------------------------------------

inline constexpr int kSumLanes = 32;
inline constexpr int kLaneTerms = 32;  // neighbours that a lane adds before the next lane's begin

// Lane l adds, one after another, the terms k with k / 32 % 32 = l; then halves are added up.
PLANQ_HD float lane_sum(FactorRow a, FactorRow b, std::int64_t terms) {
  float lanes[kSumLanes];
  for (int lane = 0; lane < kSumLanes; ++lane) lanes[lane] = 0;
  for (std::int64_t k = 0; k < terms; ++k) {
    float& lane = lanes[k / kLaneTerms % kSumLanes];
    lane = fused(a[k], b[k], lane);
  }
  for (int half = kSumLanes / 2; half > 0; half /= 2)
    for (int lane = 0; lane < half; ++lane) lanes[lane] = lanes[lane] + lanes[lane + half];
  return lanes[0];
}

}  // namespace planq::math
