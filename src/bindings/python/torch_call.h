// What torch calls for an overload of an operator. It knows no torch: tensors are read as
// everywhere here, and what only torch can do (memory, its current stream, its version counters)
// are callables.
#pragma once

#include <pybind11/pybind11.h>

namespace planq::python {

// Adds _core.torch_call.
void define_torch_call(pybind11::module_& module);

}  // namespace planq::python
