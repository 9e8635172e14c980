// The C++ object inside an instance of a pybind11 class whose type the caller has already checked:
// what pybind11's cast does, without its type look-up, for the calls that count nanoseconds.
#pragma once

#include <pybind11/pybind11.h>

namespace planq::python {

// Null where __init__ never ran or failed; pybind11 itself would hand out memory that nobody
// filled.
template <class T>
T* native(PyObject* object) {
  auto* instance = reinterpret_cast<pybind11::detail::instance*>(object);
  if (!instance->simple_layout || !instance->simple_holder_constructed) return nullptr;
  return static_cast<T*>(instance->simple_value_holder[0]);
}

}  // namespace planq::python
