// norm: the 1-, 2- or infinity-norm of all elements as one vector; sums are in the order of
// math/tree_sum.h.
#pragma once

#include "core/operands.h"
#include "core/registry.h"
#include "ops/statistics/sums.h"
#include "ops/statistics/vocabulary.h"

namespace planq::norm {

struct Fields {
  Shape shape;
  DType input_dtype = DType::Unset;
  NormOrder p = NormOrder::Two;
};

inline constexpr Field kFields[] = {
    PLANQ_FIELD(Fields, shape).required().from("input.shape"),
    PLANQ_FIELD(Fields, input_dtype).required().from("input.dtype"),
    PLANQ_FIELD(Fields, p),
};

// Positions in Operands.
enum Operand : int { kInput, kOutput };
inline constexpr auto kOperands =
    operands(kFields, {{"input", Role::Input, "input_dtype", "shape"},
                       {"output", Role::Output, compute_dtype("input_dtype"), 1}});

// The operator as its kernels see it.
struct Measuring {
  using Fields = norm::Fields;
  static constexpr std::string_view kName = "norm";

  static Measured measured_of(const Fields& f) {
    if (f.p == NormOrder::One) return {Measure::MagnitudeSum};
    if (f.p == NormOrder::Two) return {Measure::SquareSum, /*takes_root=*/true};
    return {Measure::LargestMagnitude};
  }
};

}  // namespace planq::norm
