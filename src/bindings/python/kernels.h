// Kernels of the registry as plain Python values.
#pragma once

#include <pybind11/pybind11.h>

#include "core/registry.h"

namespace planq::python {

// A kernel's entry: SKU, revision, backend, architectures, rank, guarantee, and its constraints in
// words.
pybind11::dict kernel_values(const Operator& op, const Kernel& kernel);

}  // namespace planq::python
