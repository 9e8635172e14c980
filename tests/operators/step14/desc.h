// step14: a step of an optimizer, fourteen operands. Private to the tests: tensors are updated in
// place, scalars come by value or in memory, some operands may be left out.
//
//     step += 1; g = gradient / gradient_scale
//     average = beta1 average + (1 - beta1) g
//     square = beta2 square + (1 - beta2) g^2;  if amsgrad: largest = square = max(largest, square)
//     p -= rate / step (average / (sqrt(square) + epsilon) + decay p)
//
// in float64, kept in float32. Nothing is written where `skip` is not 0.
#pragma once

#include "core/descriptor.h"
#include "core/registry.h"

namespace planq::step14 {

struct Fields {
  Shape shape;  // (m, n)
  bool amsgrad = false;
};

inline constexpr Field kFields[] = {
    PLANQ_FIELD(Fields, shape).required().from("parameter.shape"),
    PLANQ_FIELD(Fields, amsgrad),
};

enum Index : int {
  kParameter,
  kGradient,
  kAverage,
  kSquare,
  kLargest,
  kCopy,
  kRate,
  kBeta1,
  kBeta2,
  kEpsilon,
  kDecay,
  kGradientScale,
  kSkip,
  kStep,
};

inline constexpr auto kOperands =
    operands(kFields, {{"parameter", Role::InOut, DType::Float32, "shape"},
                       {"gradient", Role::Input, DType::Float32, "shape"},
                       {"average", Role::InOut, DType::Float32, "shape"},
                       {"square", Role::InOut, DType::Float32, "shape"},
                       {"largest", Role::InOut, DType::Float32, "shape", "amsgrad"},
                       tensor("copy", Role::Output, DType::Float32, "shape").optional(),
                       scalar("rate", Role::Input, DType::Float64),
                       scalar("beta1", Role::Input, DType::Float64),
                       scalar("beta2", Role::Input, DType::Float64),
                       scalar("epsilon", Role::Input, DType::Float64),
                       scalar("decay", Role::Input, DType::Float64).optional(),
                       scalar("gradient_scale", Role::Input, DType::Float64).optional(),
                       scalar("skip", Role::Input, DType::Int64).optional(),
                       scalar("step", Role::InOut, DType::Int64)});

}  // namespace planq::step14
