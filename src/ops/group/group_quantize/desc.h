// group_quantize: codes of the elements of flat groups, with parameters that are measured or given.
// The arithmetic is in ops/group/arithmetic.h.
#pragma once

#include "core/registry.h"
#include "ops/group/group.h"

namespace planq::group_quantize {

struct Fields {
  Shape shape;
  DType input_dtype = DType::Unset;
  DType output_dtype = DType::Unset;
  std::int64_t group_size = 0;
  Mode mode = Mode::Symmetric;
  Convention convention = Convention::DeepSpeed;
  bool parameters_given = false;
};

inline constexpr Field kFields[] = {
    PLANQ_FIELD(Fields, shape).required().from("input.shape"),
    PLANQ_FIELD(Fields, input_dtype).required().from("input.dtype"),
    PLANQ_FIELD(Fields, output_dtype).required(),
    PLANQ_FIELD(Fields, group_size).required(),
    PLANQ_FIELD(Fields, mode),
    PLANQ_FIELD(Fields, convention),
    PLANQ_FIELD(Fields, parameters_given),
};

// Positions in Operands.
enum Operand : int { kInput, kOutput, kParameters, kScale, kMinimum };
inline constexpr auto kOperands = operands(
    kFields,
    {{"input", Role::Input, "input_dtype", "shape"},
     {"output", Role::Output, "output_dtype", codes_shape("shape", "output_dtype")},
     group_parameters(when("parameters_given", Role::Input, Role::Output)),
     intx_parameter("scale", when("parameters_given", Role::Input, Role::Output), "input_dtype"),
     intx_parameter("minimum", when("parameters_given", Role::Input, Role::Output),
                    "input_dtype")});

inline Grouping grouping_of(const Fields& f) {
  return {f.shape, f.group_size, f.mode, f.convention, f.output_dtype};
}

}  // namespace planq::group_quantize
