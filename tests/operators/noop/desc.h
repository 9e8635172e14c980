// noop: four operands, no work. Private to the tests: it shows what adding an operator touches, and
// its kernels let the host's share of a call be measured without a GPU.
#pragma once

#include "../plain.h"
#include "core/descriptor.h"
#include "core/registry.h"

namespace planq::noop {

struct Fields {
  Shape shape;
  DType input_dtype = DType::Unset;
  DType output_dtype = DType::Unset;
};

inline constexpr Field kFields[] = {
    PLANQ_FIELD(Fields, shape).required().from("input.shape"),
    PLANQ_FIELD(Fields, input_dtype).required().from("input.dtype"),
    PLANQ_FIELD(Fields, output_dtype).required(),
};

inline constexpr auto kOperands =
    operands(kFields, {{"input", Role::Input, "input_dtype", "shape"},
                       {"output", Role::Output, "output_dtype", "shape"},
                       {"scale", Role::Output, DType::Float32, 1},
                       {"zero_point", Role::Output, DType::Int32, 1}});

using plain::accept;
// So that a descriptor with uint8 is left to the kernel that promises nothing.
inline Reason accept_int8(const Descriptor& descriptor, const Device&) {
  if (descriptor.as<Fields>().output_dtype == DType::Int8) return Reason::accept();
  return Reason::refuse(ReasonKind::DType, "computes output_dtype int8, not uint8");
}
inline std::size_t some_workspace(const Descriptor&, const Device&) { return 1000; }

}  // namespace planq::noop
