// Sums and maxima over all elements of a tensor, for norms: what is measured of an element, and
// what the kernels of both backends promise.
#pragma once

#include <cstdint>
#include <string_view>
#include <type_traits>

#include "core/registry.h"
#include "core/rejects.h"
#include "math/ieee.h"
#include "math/tree_sum.h"

namespace planq {

// Sums are those of math/tree_sum.h, over the elements in their logical order.
enum class Measure : std::uint8_t { SquareSum, MagnitudeSum, LargestMagnitude };

// A norm of order 2 is the root of what is measured.
constexpr Measure measure_of(NormOrder order) {
  if (order == NormOrder::One) return Measure::MagnitudeSum;
  return order == NormOrder::Two ? Measure::SquareSum : Measure::LargestMagnitude;
}

// What is stored of a measured number: a NaN becomes the canonical one.
template <class C>
PLANQ_HD C stored_measure(C measured) {
  return math::is_nan(measured) ? math::canonical_nan<C>() : measured;
}

inline std::int64_t sum_leaves(std::int64_t elements) {
  return elements / math::kSumLeaf + (elements % math::kSumLeaf != 0);
}

template <DType kInput>
constexpr Guarantee sum_guarantee() {
  return {.determinism = Determinism::BitExact,
          .math = kInput == DType::Float64 ? MathPrecision::F64 : MathPrecision::F32,
          .accumulator = compute_dtype(kInput),
          .rounding = Rounding::NearestEven,
          .max_ulp = 0,
          .error_bound = kNoErrorBound,
          .batch_invariant = true,
          .basis = std::string_view("IEEE operations; sums by a tree that the number of elements "
                                    "fixes; exact integer maximum of magnitudes")};
}

// `Fields` has shape and input_dtype.
template <class Fields, DType kInput>
Reason rejects_other_input(const Descriptor& descriptor, const Device&) {
  return expect(ReasonKind::DType, "input_dtype", kInput, descriptor.as<Fields>().input_dtype);
}

}  // namespace planq
