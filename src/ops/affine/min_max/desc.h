// min_max: the range of every segment, alone or together with ranges from before. The measuring is
// that of affine/ranges/ranges.h.
#pragma once

#include "core/operands.h"
#include "core/registry.h"
#include "ops/affine/ranges/ranges.h"

namespace planq::min_max {

struct Fields {
  Shape shape;
  DType input_dtype = DType::Unset;
  Scope scope;
  Mode mode = Mode::Symmetric;
  NonFinite nonfinite = NonFinite::Propagate;
  bool update = false;
};

inline constexpr Field kFields[] = {
    PLANQ_FIELD(Fields, shape).required().from("input.shape"),
    PLANQ_FIELD(Fields, input_dtype).required().from("input.dtype"),
    PLANQ_FIELD(Fields, scope),
    PLANQ_FIELD(Fields, mode),
    PLANQ_FIELD(Fields, nonfinite),
    PLANQ_FIELD(Fields, update),
};

// Positions in Operands.
enum Operand : int {
  kInput,
  kAbsmax,
  kMinimum,
  kMaximum,
  kPreviousAbsmax,
  kPreviousMinimum,
  kPreviousMaximum,
};
inline constexpr OperandInfo kOperands[] = {
    {"input", Role::Input},
    {"absmax", Role::Output, Presence::ByField},
    {"minimum", Role::Output, Presence::ByField},
    {"maximum", Role::Output, Presence::ByField},
    {"previous_absmax", Role::Input, Presence::ByField},
    {"previous_minimum", Role::Input, Presence::ByField},
    {"previous_maximum", Role::Input, Presence::ByField},
};

inline RangeProblem problem_of(const Fields& f) {
  return {f.shape, f.input_dtype, f.scope, f.mode, f.nonfinite};
}

// Operands that the descriptor does not have are without data.
inline RangeOperands ranges_of(const Fields& f, const Operands& operands) {
  const OperandView &input = operands[kInput], none{};
  if (f.mode == Mode::Symmetric)
    return {input, {none, operands[kAbsmax], none, operands[kPreviousAbsmax]}};
  return {input,
          {operands[kMinimum], operands[kMaximum], operands[kPreviousMinimum],
           operands[kPreviousMaximum]}};
}

// What the kernels of both backends promise; a range is copied, never computed.
template <class C>
constexpr Guarantee guarantee() {
  return {.determinism = Determinism::BitExact,
          .math = MathPrecision::None,
          .accumulator = sizeof(C) == 8 ? DType::Float64 : DType::Float32,
          .rounding = Rounding::None,
          .max_ulp = 0,
          .error_bound = kNoErrorBound,
          .batch_invariant = true,
          .basis = std::string_view("exact integer maximum of keys; nothing is rounded")};
}

}  // namespace planq::min_max
