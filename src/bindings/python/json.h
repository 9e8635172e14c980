// JSON as Python's own values, and stored plans in it.
#pragma once

#include <pybind11/pybind11.h>

#include "core/json.h"

namespace planq::python {

// The values that Python's json.loads has for the same text.
pybind11::object json_value(const Json& value);

// Adds _core.parse_json and what compares stored plans.
void define_json(pybind11::module_& module);

}  // namespace planq::python
