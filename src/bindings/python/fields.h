// Descriptor fields across the language border, driven by an operator's field table alone.
//
// The plain form of a value: shape = tuple of int, scope = (kind, axis, size), dtypes and the other
// enumerations = their names, bounds = float or None, flags = bool, integers = int or None.
#pragma once

#include <pybind11/pybind11.h>

#include "core/registry.h"

namespace planq::python {

// Writes one field; throws DescriptorError for a value that the field's kind cannot hold.
void write_field(Descriptor& descriptor, const Field& field, pybind11::handle value);
pybind11::object read_field(const Descriptor& descriptor, const Field& field);

// Looks a name up among an enumeration's; throws DescriptorError naming the field.
template <class E>
E enumerator(std::string_view field, pybind11::handle value);

}  // namespace planq::python
