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
  // Implicit on purpose: a row spells `.max_ulp = 0`.
  template <std::convertible_to<T> U>
  consteval Required(U spelled) : value(spelled) {}
  constexpr operator T() const { return value; }
};

inline constexpr std::int32_t kUlpUnknown = -1;

struct Guarantee {
  Required<Determinism> determinism;
  Required<MathPrecision> math;
  Required<DType> accumulator;
  Required<Rounding> rounding;
  Required<std::int32_t> max_ulp;  // against the host backend; kUlpUnknown = see basis
  Required<bool> batch_invariant;
  Required<std::string_view> basis;
};

}  // namespace planq
