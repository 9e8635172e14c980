// NumPy arrays, read from their own structure: an export by `__dlpack__` takes longer than all else
// that a call does with an operand.
#pragma once

#include <Python.h>

#include "core/operands.h"

namespace planq::python {

// Describes a `numpy.ndarray` (no subclass) as its `__dlpack__` would. False where the array's
// other interfaces have to say what it is: element types that planq has no name for or that are not
// NumPy's own, another byte order, strides of a part of an element, too many axes.
bool read_numpy_array(PyObject* array, TensorView& view);

}  // namespace planq::python
