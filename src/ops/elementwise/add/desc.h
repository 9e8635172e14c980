// add: sums of elements, the first of which are multiplied by a number; in place if wanted.
#pragma once

#include "core/elementwise.h"
#include "core/operands.h"
#include "core/registry.h"
#include "core/scalar.h"
#include "ops/elementwise/types.h"

namespace planq::add {

struct Fields {
  Shape shape;
  DType input_dtype = DType::Unset;
  DType other_dtype = DType::Unset;
  DType output_dtype = DType::Unset;
};

inline constexpr Field kFields[] = {
    PLANQ_FIELD(Fields, shape).required().from("input.shape"),
    PLANQ_FIELD(Fields, input_dtype).required().from("input.dtype"),
    PLANQ_FIELD(Fields, other_dtype).from("other.dtype"),
    PLANQ_FIELD(Fields, output_dtype),
};

// Positions in Operands.
enum Operand : int { kInput, kOther, kOutput, kAlpha };
inline constexpr auto kOperands =
    operands(kFields, {{"input", Role::Input, "input_dtype", "shape"},
                       {"other", Role::Input, "other_dtype", "shape"},
                       tensor("output", Role::Output, "output_dtype", "shape").in_place_of("input"),
                       scalar("alpha", Role::Input, DType::Float64).optional()});

inline ElementLayout layout_of(const Call& call) {
  const Operands& given = call.operands;
  return element_layout(call.fields<Fields>().shape, Scope{},
                        {ElementOperand{&given[kInput]}, ElementOperand{&given[kOther]},
                         ElementOperand{&given[kOutput]}});
}

// alpha, rounded to float32; 1 where the caller left it out.
struct Factor {
  RealScalar given;
  float value;

  explicit Factor(const OperandView& view)
      : given(real_of(view, 1)), value(static_cast<float>(given.value)) {}
  PLANQ_HD float get() const { return given.data ? static_cast<float>(given.get()) : value; }
};

PLANQ_HD float sum_of(float input, float alpha, float other) {
  const float product = input * alpha;
  return product + other;
}

// A kernel takes `other` of every type.
template <DType kInputType, DType kOutputType, Backend kBackend>
constexpr Kernel kernel(decltype(Kernel::prepare) prepare, decltype(Kernel::bind) bind) {
  return elementwise::kernel<Fields, kInputType, kOutputType, kBackend>("add", prepare, bind);
}

}  // namespace planq::add
