// Raising planq's Python exceptions from C++. The classes live in planq/errors.py; this is the only
// place that knows how they are constructed.
#pragma once

#include <Python.h>

#include <cstdint>
#include <string>

#include "core/operands.h"
#include "core/status.h"

namespace planq::python {

// Each sets the Python error and returns null, so that a caller can `return raise_...`.
PyObject* raise_descriptor_error(const Fault& fault);
PyObject* raise_argument_error(const ArgumentFailure& failure);
PyObject* raise_workspace_error(std::size_t needed, std::size_t got, const char* problem);
PyObject* raise_stream_error(const std::string& message);
PyObject* raise_cuda_error(int code, const char* what);

// The exception instance instead of raising it; a new reference.
PyObject* make_argument_error(const ArgumentFailure& failure);

}  // namespace planq::python
