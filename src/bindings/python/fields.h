// Fields of descriptors and preferences across the language border, driven by their tables alone. A
// new kind of field is read in core/field_reader.h and printed here; a new field is mentioned in
// neither.
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

// Each throws DescriptorError where the names of a dictionary cannot be those that to_dict writes.
// The first answers the name of the operator.
std::string_view check_descriptor_values(pybind11::handle values);
void check_preference_values(pybind11::handle values);
// Whether names are those of fields of an operator, or else of a preference.
void check_field_names(const std::string& whose, const pybind11::dict& given);
[[noreturn]] void refuse_operator(pybind11::handle name);

// What to_dict writes as the scope or the dim; and the maximum of a dim that is being made.
pybind11::object read_scope(pybind11::handle value, const std::string& field);
pybind11::object read_dim(pybind11::handle value, const std::string& field);
std::int64_t read_maximum(pybind11::handle name, pybind11::handle maximum);

// The fields as the attributes of the Python descriptor hold them, by name.
pybind11::dict field_values(const Descriptor& descriptor);

// One tuple per field: (name, kind, required, default, source).
pybind11::tuple field_table(std::span<const Field> fields);

}  // namespace planq::python
