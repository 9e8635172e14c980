#include "bindings/python/errors.h"

#include "core/device.h"

namespace planq::python {
namespace {

PyObject* error_class(const char* name) {
  PyObject* module = PyImport_ImportModule("planq.errors");
  if (!module) return nullptr;
  PyObject* type = PyObject_GetAttrString(module, name);
  Py_DECREF(module);
  return type;
}

// Builds `planq.errors.<name>(*arguments)`; steals the arguments tuple.
PyObject* construct(const char* name, PyObject* arguments) {
  PyObject* type = arguments ? error_class(name) : nullptr;
  PyObject* error = type ? PyObject_CallObject(type, arguments) : nullptr;
  Py_XDECREF(type);
  Py_XDECREF(arguments);
  return error;
}

PyObject* raise(PyObject* error) {
  if (error) {
    PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(error)), error);
    Py_DECREF(error);
  }
  return nullptr;
}

}  // namespace

PyObject* raise_descriptor_error(const Fault& fault) {
  return raise(
      construct("DescriptorError", Py_BuildValue("(ss)", fault.field.c_str(), fault.text.c_str())));
}

PyObject* make_argument_error(const ArgumentFailure& failure) {
  return construct("ArgumentError",
                   Py_BuildValue("(ssss)", failure.operand.c_str(), failure.expected.c_str(),
                                 failure.actual.c_str(), failure.advice.c_str()));
}

PyObject* raise_argument_error(const ArgumentFailure& failure) {
  return raise(make_argument_error(failure));
}

PyObject* raise_workspace_error(std::size_t needed, std::size_t got, const char* problem) {
  return raise(construct("WorkspaceError",
                         Py_BuildValue("(nnns)", needed, got, kWorkspaceAlignment, problem)));
}

PyObject* raise_stream_error(const std::string& message) {
  return raise(construct("StreamError", Py_BuildValue("(s)", message.c_str())));
}

PyObject* raise_cuda_error(int code, const char* what) {
  return raise(construct("CudaError", Py_BuildValue("(isss)", code, cuda_error_name(code),
                                                    cuda_error_text(code), what)));
}

}  // namespace planq::python
