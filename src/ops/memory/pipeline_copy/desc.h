// pipeline_copy: the elements of a tensor in another place, through stages of shared memory on
// CUDA.
#pragma once

#include "core/elementwise.h"
#include "core/operands.h"
#include "core/registry.h"

namespace planq::pipeline_copy {

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
                       {"output", Role::Output, "input_dtype", "shape"}});

inline constexpr Guarantee kGuarantee = {.determinism = Determinism::BitExact,
                                         .math = MathPrecision::None,
                                         .accumulator = DType::Int64,
                                         .rounding = Rounding::None,
                                         .max_ulp = 0,
                                         .error_bound = kNoErrorBound,
                                         .batch_invariant = true,
                                         .basis = "moves bytes"};

inline Reason accept(const Descriptor&, const Device&) { return Reason::accept(); }

inline ElementLayout layout_of(const Call& call) {
  return element_layout(
      call.fields<Fields>().shape, Scope{},
      {ElementOperand{&call.operands[kInput]}, ElementOperand{&call.operands[kOutput]}});
}

}  // namespace planq::pipeline_copy
