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

inline constexpr OperandInfo kOperands[] = {
    {"parameter", Role::InOut},
    {"gradient", Role::Input},
    {"average", Role::InOut},
    {"square", Role::InOut},
    {"largest", Role::InOut, Presence::ByField},
    {"copy", Role::Output, Presence::Optional},
    {"rate", Role::Input, Presence::Always, OperandKind::Scalar},
    {"beta1", Role::Input, Presence::Always, OperandKind::Scalar},
    {"beta2", Role::Input, Presence::Always, OperandKind::Scalar},
    {"epsilon", Role::Input, Presence::Always, OperandKind::Scalar},
    {"decay", Role::Input, Presence::Optional, OperandKind::Scalar},
    {"gradient_scale", Role::Input, Presence::Optional, OperandKind::Scalar},
    {"skip", Role::Input, Presence::Optional, OperandKind::Scalar},
    {"step", Role::InOut, Presence::Always, OperandKind::Scalar},
};

}  // namespace planq::step14
