// every_kind: an operator without kernels that has a field of every kind. Private to the tests of
// descriptors.
#pragma once

#include "core/descriptor.h"
#include "core/registry.h"

namespace planq {

#define PLANQ_SHADE_NAMES(_) _(Unset, "") _(Light, "light") _(Dark, "dark")
PLANQ_DEFINE(Shade, PLANQ_SHADE_NAMES)

}  // namespace planq

namespace planq::every_kind {

// Bytes stand together: a descriptor has room for no more than these.
struct Fields {
  Shape shape;
  Shape other;
  ShapeList shapes;
  IntegerList integers;
  EnumerationList<Mode> modes;
  DType input_dtype = DType::Unset;
  DType other_dtype = DType::Int4;
  DType optional_dtype = DType::Unset;
  Mode mode = Mode::Asymmetric;
  Shade optional_enumeration = Shade::Unset;
  bool flag = true;
  Scope scope = {ScopeKind::Token};
  double number = 0.5;
  double optional_number = kUnsetBound;
  std::int64_t integer = -3;
  std::int64_t count = 0;
};

inline constexpr Field kFields[] = {
    PLANQ_FIELD(Fields, shape).required().from("input.shape"),
    PLANQ_FIELD(Fields, other).required(),
    PLANQ_FIELD(Fields, shapes),
    PLANQ_FIELD(Fields, integers),
    PLANQ_FIELD(Fields, modes),
    PLANQ_FIELD(Fields, input_dtype).required().from("input.dtype"),
    PLANQ_FIELD(Fields, other_dtype),
    PLANQ_FIELD(Fields, optional_dtype),
    PLANQ_FIELD(Fields, scope),
    PLANQ_FIELD(Fields, mode),
    PLANQ_FIELD(Fields, optional_enumeration),
    PLANQ_FIELD(Fields, number),
    PLANQ_FIELD(Fields, optional_number),
    PLANQ_FIELD(Fields, flag),
    PLANQ_FIELD(Fields, integer),
    PLANQ_FIELD(Fields, count).count(),
};

inline constexpr auto kOperands = operands(
    kFields,
    {
        {"input", Role::Input, "input_dtype", axes(elements_of("shapes"), length_of("shapes"))},
        tensor("bytes", Role::Input, DType::UInt8, "shape").optional(),  // whose dims are its axes
    });

}  // namespace planq::every_kind
