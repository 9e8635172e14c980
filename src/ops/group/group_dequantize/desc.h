// group_dequantize: elements from the codes of flat groups and their parameters. The arithmetic is
// in ops/group/arithmetic.h.
#pragma once

#include "core/registry.h"
#include "ops/group/group.h"

namespace planq::group_dequantize {

struct Fields {
  Shape shape;
  DType input_dtype = DType::Unset;
  DType output_dtype = DType::Unset;
  std::int64_t group_size = 0;
  Mode mode = Mode::Symmetric;
  Convention convention = Convention::DeepSpeed;
};

inline constexpr Field kFields[] = {
    PLANQ_FIELD(Fields, shape).required().from("input.shape"),
    PLANQ_FIELD(Fields, input_dtype).required(),
    PLANQ_FIELD(Fields, output_dtype).required(),
    PLANQ_FIELD(Fields, group_size).required(),
    PLANQ_FIELD(Fields, mode),
    PLANQ_FIELD(Fields, convention),
};

// Positions in Operands.
enum Operand : int { kInput, kOutput, kParameters, kScale, kMinimum };
inline constexpr auto kOperands =
    operands(kFields, {{"input", Role::Input, "input_dtype", codes_shape("shape", "input_dtype")},
                       {"output", Role::Output, "output_dtype", "shape"},
                       group_parameters(Role::Input),
                       intx_parameter("scale", Role::Input, "output_dtype"),
                       intx_parameter("minimum", Role::Input, "output_dtype")});

inline Grouping grouping_of(const Fields& f) {
  return {f.shape, f.group_size, f.mode, f.convention, f.input_dtype};
}

}  // namespace planq::group_dequantize
