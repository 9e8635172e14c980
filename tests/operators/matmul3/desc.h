// matmul3: output = a b^T, three operands of three shapes. Private to the tests: it has a kernel
// whose sums are bounded, not exact to the bit, and two bodies of one that is.
#pragma once

#include "core/descriptor.h"
#include "core/registry.h"

namespace planq::matmul3 {

struct Fields {
  Shape a_shape;       // (m, k)
  Shape b_shape;       // (n, k)
  Shape output_shape;  // (m, n)
};

inline constexpr Field kFields[] = {
    PLANQ_FIELD(Fields, a_shape).required().from("a.shape"),
    PLANQ_FIELD(Fields, b_shape).required().from("b.shape"),
    PLANQ_FIELD(Fields, output_shape).required(),
};

inline constexpr auto kOperands =
    operands(kFields, {{"a", Role::Input, DType::Float32, "a_shape"},
                       {"b", Role::Input, DType::Float32, "b_shape"},
                       {"output", Role::Output, DType::Float32, "output_shape"}});

// The terms of a sum.
inline std::int64_t terms(const Descriptor& descriptor) {
  return descriptor.as<Fields>().a_shape.last();
}

}  // namespace planq::matmul3
