// An operator's operand table as Python has it: core/rules.h in nested tuples.
#pragma once

#include <pybind11/pybind11.h>

#include "core/registry.h"

namespace planq::python {

// By the operands' names: kind, and the rules of role, dtype, shape, present and optional. A rule
// is a tuple that begins with the name of its RuleOp. A field goes by its name, a part of a scope
// by "scope.kind", an enumerator by its name.
pybind11::dict operand_table(const Operator& op);

}  // namespace planq::python
