// Kernels of the registry as plain Python values.
#pragma once

#include <pybind11/pybind11.h>

#include <span>
#include <string>
#include <string_view>
#include <tuple>

#include "core/registry.h"
#include "core/select.h"

namespace planq::python {

// What pybind11 makes a str of.
inline std::string text(std::string_view view) { return std::string(view); }

// A kernel's entry: SKU, body, revision, backend, architectures, rank, the guarantee that is given,
// and its constraints in words.
pybind11::dict kernel_values(const Operator& op, const Kernel& kernel, const Guarantee& guarantee);
// One tuple per body: (name, chosen, reason, workspace, constraints).
pybind11::list body_values(const Operator& op, std::span<const Candidate> bodies);
// Of a guarantee what a descriptor may decide; with the SKU, a key of what all of it is.
std::tuple<bool, std::string, std::string, std::string> decided_values(const Guarantee& guarantee);

}  // namespace planq::python
