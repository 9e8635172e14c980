// Memory of planq.memory, lent to array libraries by DLPack capsules.
#pragma once

#include <pybind11/pybind11.h>

namespace planq::python {

void define_lending(pybind11::module_& module);

}  // namespace planq::python
