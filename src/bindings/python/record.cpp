#include "bindings/python/record.h"

#include <cstddef>
#include <string>

#include "bindings/python/kernels.h"
#include "bindings/python/vocabularies.h"

namespace planq::python {

namespace py = pybind11;

RecordHook record_hook;

namespace {

py::tuple described(const std::string& name, int member, const OperandView& view, bool by_value) {
  const auto rank = static_cast<std::size_t>(by_value ? 0 : view.rank);
  py::tuple extents(rank), strides(rank);
  for (std::size_t axis = 0; axis < rank; ++axis) {
    extents[axis] = py::int_(view.extents[axis]);
    strides[axis] = py::int_(view.strides[axis]);
  }
  py::object pointer = py::none(), bits = py::none();
  if (by_value)  // the union's integer has the bits of its double, too
    bits = py::int_(static_cast<std::uint64_t>(view.value));
  else
    pointer = py::int_(reinterpret_cast<std::uintptr_t>(view.data));
  return py::make_tuple(name, member, pointer, text(name_of(view.dtype)), extents, strides, bits);
}

py::list described_all(const Plan& plan, Operands operands) {
  py::list listed;
  for (std::size_t i = 0; i < operands.size(); ++i) {
    const OperandSpec& spec = plan.specs[i];
    const OperandView& view = operands[i];
    const std::string name = operand_name(plan, static_cast<int>(i));
    if (view.members) {
      for (int member = 0; member < spec.shapes.count; ++member)
        listed.append(described(name, member, view.members[member], false));
    } else if (view.dtype != DType::Unset) {  // else the caller has left it out
      listed.append(described(name, -1, view, spec.kind == OperandKind::Scalar && !view.data));
    }
  }
  return listed;
}

}  // namespace

Ref described_operands(const Plan& plan, Operands operands) {
  try {
    return Ref(described_all(plan, operands).release().ptr());
  } catch (py::error_already_set& error) {
    error.restore();
    return Ref();
  }
}

bool Sampled::begin(PyObject* plan, std::int64_t number, const Stream& stream, PyObject* operands) {
  if (!operands) return false;
  const Ref handle(stream.backend == Backend::Cuda ? PyLong_FromVoidPtr(stream.handle)
                                                   : Py_NewRef(Py_None));
  if (!handle) return false;
  Ref after(PyObject_CallFunction(record_hook.begin, "OLOO", plan, static_cast<long long>(number),
                                  handle.get(), operands));
  if (!after) return false;
  if (after.get() != Py_None) after_ = std::move(after);
  return true;
}

PyObject* Sampled::ended(PyObject* done) const {
  PyObject *type = nullptr, *value = nullptr, *trace = nullptr;
  if (!done) PyErr_Fetch(&type, &value, &trace);
  const Ref told(PyObject_CallOneArg(after_.get(), done ? Py_True : Py_False));
  if (!done && told) PyErr_Restore(type, value, trace);
  if (told) return done;
  Py_XDECREF(type);
  Py_XDECREF(value);
  Py_XDECREF(trace);
  Py_XDECREF(done);
  return nullptr;
}

void define_recording(py::module_& module) {
  module.def(
      "set_record_hook",
      [](const py::object& begin, std::uint64_t every) {
        if (every == 0) throw py::value_error("every: expected 1 or more, got 0");
        PyObject* before = record_hook.begin;
        record_hook = {begin.is_none() ? nullptr : py::object(begin).release().ptr(), every};
        Py_XDECREF(before);
      },
      py::arg("begin"), py::arg("every") = 1);
}

}  // namespace planq::python
