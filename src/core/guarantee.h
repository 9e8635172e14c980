// What a kernel promises about its bits. Every field has to be spelled where the kernel is
// registered: Required<T> has no default constructor, so an omission does not compile.
#pragma once

#include <concepts>
#include <cstdint>
#include <string_view>

#include "core/dtype.h"

namespace planq {

template <class T>
struct Required {
  T value;
  // Implicit on purpose: a kernel spells `.max_ulp = 0`.
  template <std::convertible_to<T> U>
  consteval Required(U spelled) : value(spelled) {}
  constexpr operator T() const { return value; }
};
// A template, so that a Required and its T still compare as two T.
template <class T>
constexpr bool operator==(const Required<T>& a, const Required<T>& b) {
  return a.value == b.value;
}

inline constexpr std::int32_t kUlpUnknown = -1;

struct Descriptor;

// The error of sums that are added in another order than the host backend's:
// |y - exact| <= (constant + per_term * K) * epsilon * sum |a||b|, plus one rounding of the output
// where it has fewer bits. A factor smaller than least_factor counts as that, which is what units
// that align products by the exponents of factors do with subnormal ones. None where `terms` is
// null.
struct ErrorBound {
  double constant = 0, per_term = 0;
  double epsilon = 0;  // unit roundoff of the accumulator, twice the relative error of a rounding
  double least_factor = 0;
  bool output_rounding = false;
  std::int64_t (*terms)(const Descriptor&) = nullptr;  // K

  constexpr bool operator==(const ErrorBound&) const = default;
};
// Of kernels whose error is 0, or that only `basis` can speak of.
inline constexpr ErrorBound kNoErrorBound{};

struct Guarantee {
  Required<Determinism> determinism;
  Required<MathPrecision> math;
  Required<DType> accumulator;
  Required<Rounding> rounding;
  Required<std::int32_t> max_ulp;  // against the host backend; kUlpUnknown = see basis
  Required<ErrorBound> error_bound;
  Required<bool> batch_invariant;
  Required<std::string_view> basis;

  constexpr bool operator==(const Guarantee&) const = default;
};

}  // namespace planq
