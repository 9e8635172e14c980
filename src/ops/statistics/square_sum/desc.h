// square_sum: the sum of the squares of all elements, in the order of math/tree_sum.h.
#pragma once

#include "core/operands.h"
#include "core/registry.h"
#include "ops/statistics/sums.h"

namespace planq::square_sum {

struct Fields {
  Shape shape;
  DType input_dtype = DType::Unset;
};

inline constexpr Field kFields[] = {
    PLANQ_FIELD(Fields, shape).required().from("input.shape"),
    PLANQ_FIELD(Fields, input_dtype).required().from("input.dtype"),
};

// Positions in Operands.
enum Operand : int { kInput, kOutput };
inline constexpr auto kOperands =
    operands(kFields, {{"input", Role::Input, "input_dtype", "shape"},
                       {"output", Role::Output, compute_dtype("input_dtype"), 1}});

// The operator as its kernels see it.
struct Measuring {
  using Fields = square_sum::Fields;
  static constexpr std::string_view kName = "square_sum";

  static Measured measured_of(const Fields&) { return {Measure::SquareSum}; }
};

}  // namespace planq::square_sum
