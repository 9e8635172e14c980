// list300: parameter[i] -= rate gradient[i] for lists of tensors, and sums[i] = the sum of
// parameter[i] before that. Private to the tests, which give it 300 tensors.
#pragma once

#include "core/descriptor.h"
#include "core/registry.h"

namespace planq::list300 {

struct Fields {
  ShapeList shapes;  // of the members
};

inline constexpr Field kFields[] = {
    PLANQ_FIELD(Fields, shapes).required().from("parameter.shape"),
};

inline constexpr OperandInfo kOperands[] = {
    {"parameter", Role::InOut, Presence::Always, OperandKind::List},
    {"gradient", Role::Input, Presence::Always, OperandKind::List},
    {"rate", Role::Input, Presence::Always, OperandKind::Scalar},
    {"sums", Role::Output},
};

}  // namespace planq::list300
