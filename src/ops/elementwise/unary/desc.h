// unary: an elementary function of each element, in place if wanted.
#pragma once

#include "core/elementwise.h"
#include "core/operands.h"
#include "core/registry.h"
#include "math/functions.h"
#include "ops/elementwise/types.h"
#include "ops/elementwise/vocabulary.h"

namespace planq::unary {

struct Fields {
  Shape shape;
  UnaryFunction function = UnaryFunction::Exp;
  DType input_dtype = DType::Unset;
  DType output_dtype = DType::Unset;
};

inline constexpr Field kFields[] = {
    PLANQ_FIELD(Fields, shape).required().from("input.shape"),
    PLANQ_FIELD(Fields, function).required(),
    PLANQ_FIELD(Fields, input_dtype).required().from("input.dtype"),
    PLANQ_FIELD(Fields, output_dtype),
};

// Positions in Operands.
enum Operand : int { kInput, kOutput };
inline constexpr auto kOperands = operands(
    kFields, {{"input", Role::Input, "input_dtype", "shape"},
              tensor("output", Role::Output, "output_dtype", "shape").in_place_of("input")});

// The function that an enumerator names.
constexpr math::Function function_of(UnaryFunction function) {
  switch (function) {
    case UnaryFunction::Exp:
      return math::Function::Exp;
    case UnaryFunction::Exp2:
      return math::Function::Exp2;
    case UnaryFunction::Log:
      return math::Function::Log;
    case UnaryFunction::Log2:
      return math::Function::Log2;
    case UnaryFunction::Rsqrt:
      return math::Function::Rsqrt;
    case UnaryFunction::Sigmoid:
      return math::Function::Sigmoid;
    case UnaryFunction::Tanh:
      return math::Function::Tanh;
    default:
      return math::Function::Erf;
  }
}

inline ElementLayout layout_of(const Call& call) {
  return element_layout(
      call.fields<Fields>().shape, Scope{},
      {ElementOperand{&call.operands[kInput]}, ElementOperand{&call.operands[kOutput]}});
}

template <DType kInputType, DType kOutputType, Backend kBackend>
constexpr Kernel kernel(decltype(Kernel::prepare) prepare, decltype(Kernel::bind) bind) {
  return elementwise::kernel<Fields, kInputType, kOutputType, kBackend>("unary", prepare, bind);
}

}  // namespace planq::unary
