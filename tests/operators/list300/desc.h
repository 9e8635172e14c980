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

inline constexpr auto kOperands =
    operands(kFields, {list("parameter", Role::InOut, DType::Float32, "shapes"),
                       list("gradient", Role::Input, DType::Float32, "shapes"),
                       scalar("rate", Role::Input, DType::Float64),
                       {"sums", Role::Output, DType::Float64, length_of("shapes")}});

}  // namespace planq::list300
