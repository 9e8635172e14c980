// steps: output = 2 input + 1 in three launches, by way of a workspace. Private to the tests: one
// of the launches is refused by some streams, where another takes its place.
#pragma once

#include "core/descriptor.h"
#include "core/registry.h"

namespace planq::steps {

struct Fields {
  Shape shape;  // (m, n)
};

inline constexpr Field kFields[] = {
    PLANQ_FIELD(Fields, shape).required().from("input.shape"),
};

inline constexpr OperandInfo kOperands[] = {
    {"input", Role::Input},
    {"output", Role::Output},
    {"way", Role::Output},  // 1: the first choice was taken, 2: the other
};

}  // namespace planq::steps
