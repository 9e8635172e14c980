// thirds: output = input / 3. Private to the tests: a kernel asks of operands what another one does
// not, and gives other bits.
#pragma once

#include "core/descriptor.h"
#include "core/registry.h"

namespace planq::thirds {

struct Fields {
  Shape shape;  // (m, n)
};

inline constexpr Field kFields[] = {
    PLANQ_FIELD(Fields, shape).required().from("input.shape"),
};

inline constexpr auto kOperands =
    operands(kFields, {{"input", Role::Input, DType::Float32, "shape"},
                       {"output", Role::Output, DType::Float32, "shape"}});

}  // namespace planq::thirds
