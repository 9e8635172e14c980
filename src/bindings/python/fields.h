// Fields of descriptors and preferences across the language border, driven by their tables alone. A
// new kind of field is parsed and printed here; a new field is not mentioned here.
#pragma once

#include <pybind11/pybind11.h>

#include "core/registry.h"
#include "core/select.h"

namespace planq::python {

// Reads the attributes of a Python descriptor, resolves them, and writes them back with `_native`.
// Throws DescriptorError naming the field.
void resolve_descriptor(pybind11::handle instance);
// The same of a Python preference, which is checked field by field alone.
void resolve_preference(pybind11::handle instance);

// The fields as the attributes of the Python descriptor hold them, by name.
pybind11::dict field_values(const Descriptor& descriptor);

// One tuple per field: (name, kind, required, default, source).
pybind11::tuple field_table(std::span<const Field> fields);

}  // namespace planq::python
