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
constexpr OperandLine range_line(const char* name, Role role, const Rule& present) {
  return {name, role, compute_dtype("input_dtype"), parameter_shape("shape", "scope"), present};
}
constexpr OperandLine range_end(const char* name, Mode mode) {
  return range_line(name, Role::Output, is("mode", mode));
}
constexpr OperandLine range_before(const char* name, Mode mode) {
  return range_line(name, Role::Input, is("mode", mode) && "update");
}
inline constexpr auto kOperands =
    operands(kFields, {{"input", Role::Input, "input_dtype", "shape"},
                       range_end("absmax", Mode::Symmetric).in_place_of("previous_absmax"),
                       range_end("minimum", Mode::Asymmetric).in_place_of("previous_minimum"),
                       range_end("maximum", Mode::Asymmetric).in_place_of("previous_maximum"),
                       range_before("previous_absmax", Mode::Symmetric),
                       range_before("previous_minimum", Mode::Asymmetric),
                       range_before("previous_maximum", Mode::Asymmetric)});

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
