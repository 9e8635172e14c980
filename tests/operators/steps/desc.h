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

inline constexpr auto kOperands = operands(
    kFields,
    {
        {"input", Role::Input, DType::Float32, "shape"},
        {"output", Role::Output, DType::Float32, "shape"},
        {"way", Role::Output, DType::Int32, 1},  // 1: the first choice was taken, 2: the other
    });

}  // namespace planq::steps
