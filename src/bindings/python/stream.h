// Stream intake: the host stream, and every object that names a CUDA stream the caller owns.
#pragma once

#include <Python.h>

#include "core/device.h"

namespace planq::python {

// planq.HOST and what host_stream() makes.
struct HostStream {
  std::int32_t threads;
};
// What cuda_stream(handle, device) makes.
struct CudaStream {
  std::uintptr_t handle;
  std::int32_t device;
};

// Reads a stream; false means that the Python error (StreamError) is set.
bool read_stream(PyObject* object, Stream& stream);

// Called once by the module with the two classes above.
void set_stream_types(PyTypeObject* host, PyTypeObject* cuda);

}  // namespace planq::python
