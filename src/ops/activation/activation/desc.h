// activation: a function of each element, or of the gate's elements times those of the up side.
#pragma once

#include <array>
#include <cstddef>

#include "core/elementwise.h"
#include "core/operands.h"
#include "core/registry.h"
#include "ops/activation/vocabulary.h"
#include "ops/affine/quantized_output.h"
#include "ops/elementwise/types.h"

namespace planq::activation {

struct Fields {
  Shape shape;  // of one side
  ActivationFunction function = ActivationFunction::Silu;
  bool gated = false;
  GateLayout layout = GateLayout::Halves;
  DType input_dtype = DType::Unset;
  DType output_dtype = DType::Unset;
  affine::QuantizedOutput quantized;

  bool is_packed() const { return gated && layout != GateLayout::Separate; }
};

inline constexpr auto kFields = joined(
    std::array{PLANQ_FIELD(Fields, shape).required(), PLANQ_FIELD(Fields, function).required(),
               PLANQ_FIELD(Fields, gated), PLANQ_FIELD(Fields, layout),
               PLANQ_FIELD(Fields, input_dtype).required().from("input.dtype"),
               PLANQ_FIELD(Fields, output_dtype)},
    affine::quantized_fields(offsetof(Fields, quantized)));

// Positions in Operands.
enum Operand : int {
  kInput,
  kUp,
  kOutput,
  kScale,
  kZeroPoint,
  kInverseTensorScale,
  kFloatingOutput
};
inline constexpr auto kOperands = operands(
    kFields, {{"input", Role::Input, "input_dtype",
               when("gated" && !is("layout", GateLayout::Separate),
                    axes(leading("shape"), last_of("shape") * 2), "shape")},
              {"up", Role::Input, "input_dtype", "shape", is("layout", GateLayout::Separate)},
              affine::codes_line(),
              affine::scale_line(),
              affine::zero_point_line(),
              affine::inverse_tensor_scale_line(),
              affine::floating_output_line()});

template <DType kInputType, DType kOutputType, Backend kBackend>
constexpr Kernel kernel(decltype(Kernel::prepare) prepare, decltype(Kernel::bind) bind) {
  return elementwise::kernel<Fields, kInputType, kOutputType, kBackend>("activation", prepare,
                                                                        bind);
}

}  // namespace planq::activation
