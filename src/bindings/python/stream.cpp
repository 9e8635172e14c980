#include "bindings/python/stream.h"

#include <string>
#include <unordered_map>

#include "bindings/python/errors.h"
#include "bindings/python/native.h"

namespace planq::python {
namespace {

PyTypeObject* host_type = nullptr;
PyTypeObject* cuda_type = nullptr;

// How a stream type tells its handle and its device; found once per type.
enum class StreamRoute { None, Host, Cuda, Attributes, Protocol };

struct StreamNames {
  PyObject* protocol = PyUnicode_InternFromString("__cuda_stream__");
  PyObject* handle = PyUnicode_InternFromString("cuda_stream");
  PyObject* device_index = PyUnicode_InternFromString("device_index");
};
const StreamNames& stream_names() {
  static const StreamNames* interned = new StreamNames;
  return *interned;
}

StreamRoute classify(PyTypeObject* type) {
  if (type == host_type) return StreamRoute::Host;
  if (type == cuda_type) return StreamRoute::Cuda;
  auto* object = reinterpret_cast<PyObject*>(type);
  // torch.cuda.Stream names both directly, which also tells the device of the default stream.
  if (PyObject_HasAttr(object, stream_names().handle) &&
      PyObject_HasAttr(object, stream_names().device_index))
    return StreamRoute::Attributes;
  return PyObject_HasAttr(object, stream_names().protocol) ? StreamRoute::Protocol
                                                           : StreamRoute::None;
}

StreamRoute route_of(PyTypeObject* type) {
  static PyTypeObject* last_type = nullptr;
  static StreamRoute last_route;
  if (type == last_type) return last_route;
  static auto* cache = new std::unordered_map<PyTypeObject*, StreamRoute>;
  auto found = cache->find(type);
  if (found == cache->end()) {
    Py_INCREF(type);
    found = cache->emplace(type, classify(type)).first;
  }
  last_type = type;
  last_route = found->second;
  return last_route;
}

bool fail(const std::string& message) {
  raise_stream_error(message);
  return false;
}

bool read_attribute(PyObject* object, PyObject* name, std::uintptr_t& value) {
  PyObject* attribute = PyObject_GetAttr(object, name);
  if (!attribute) return false;
  value = reinterpret_cast<std::uintptr_t>(PyLong_AsVoidPtr(attribute));
  Py_DECREF(attribute);
  return !PyErr_Occurred();
}

bool read_protocol(PyObject* object, Stream& stream) {
  PyObject* answer = PyObject_CallMethodNoArgs(object, stream_names().protocol);
  if (!answer) return false;
  const bool pair = PyTuple_Check(answer) && PyTuple_GET_SIZE(answer) == 2;
  stream.handle = pair ? PyLong_AsVoidPtr(PyTuple_GET_ITEM(answer, 1)) : nullptr;
  Py_DECREF(answer);
  if (!pair || PyErr_Occurred()) {
    PyErr_Clear();
    return fail("__cuda_stream__ did not answer (version, handle) with an integer handle");
  }
  int device = 0;
  if (const Status status = cuda_stream_device(stream.handle, device); !status.ok()) {
    raise_cuda_error(status.cuda_error, "asking a stream for its device");
    return false;
  }
  stream.device = device;
  return true;
}

bool refuse(PyObject* object) {
  if (object == Py_None)
    return fail(
        "expected a stream, got None; planq has no current stream: pass planq.HOST or the "
        "CUDA stream that the work belongs to");
  if (PyLong_Check(object))
    return fail(
        "an integer handle does not tell its device; pass planq.cuda_stream(handle, device)");
  return fail(std::string("expected planq.HOST, planq.host_stream(), planq.cuda_stream(), (handle, "
                          "device) or an object with __cuda_stream__, got ") +
              Py_TYPE(object)->tp_name);
}

}  // namespace

void set_stream_types(PyTypeObject* host, PyTypeObject* cuda) {
  host_type = host;
  cuda_type = cuda;
}

bool read_stream(PyObject* object, Stream& stream) {
  stream.backend = Backend::Cuda;
  switch (route_of(Py_TYPE(object))) {
    case StreamRoute::Host:
      stream.backend = Backend::Host;
      stream.threads = native<HostStream>(object)->threads;
      return true;
    case StreamRoute::Cuda: {
      const CudaStream* named = native<CudaStream>(object);
      stream.handle = reinterpret_cast<void*>(named->handle);
      stream.device = named->device;
      return true;
    }
    case StreamRoute::Attributes: {
      std::uintptr_t handle = 0, device = 0;
      if (!read_attribute(object, stream_names().handle, handle) ||
          !read_attribute(object, stream_names().device_index, device))
        return false;
      stream.handle = reinterpret_cast<void*>(handle);
      stream.device = static_cast<std::int32_t>(device);
      return true;
    }
    case StreamRoute::Protocol:
      return read_protocol(object, stream);
    default:
      break;
  }
  if (PyTuple_Check(object) && PyTuple_GET_SIZE(object) == 2 &&
      PyLong_Check(PyTuple_GET_ITEM(object, 0)) && PyLong_Check(PyTuple_GET_ITEM(object, 1))) {
    stream.handle = PyLong_AsVoidPtr(PyTuple_GET_ITEM(object, 0));
    stream.device = static_cast<std::int32_t>(PyLong_AsLong(PyTuple_GET_ITEM(object, 1)));
    if (!PyErr_Occurred()) return true;
    PyErr_Clear();
    return fail("(handle, device) are integers of 64 and 32 bits");
  }
  return refuse(object);
}

}  // namespace planq::python
