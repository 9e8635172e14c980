#include "bindings/python/source.h"

#include <pybind11/stl.h>

#include "bindings/python/vocabularies.h"

namespace planq::python {

namespace py = pybind11;

namespace {

// The attributes of a Scope and of a Dim.
struct PartNames {
  PyObject* kind = PyUnicode_InternFromString("kind");
  PyObject* axis = PyUnicode_InternFromString("axis");
  PyObject* size = PyUnicode_InternFromString("size");
  PyObject* rows = PyUnicode_InternFromString("rows");
  PyObject* name = PyUnicode_InternFromString("name");
  PyObject* max = PyUnicode_InternFromString("max");
};
const PartNames& part_names() {
  static const PartNames* all = new PartNames;
  return *all;
}

Ref attribute(PyObject* object, PyObject* name) {
  Ref value(PyObject_GetAttr(object, name));
  if (!value) throw py::error_already_set();
  return value;
}

// For a question that TypeError answers. Other errors are nobody's answer.
void drop_type_error() {
  if (!PyErr_ExceptionMatches(PyExc_TypeError)) throw py::error_already_set();
  PyErr_Clear();
}

Fit narrow(PyObject* number, std::int64_t& integer) {
  int overflow = 0;
  integer = PyLong_AsLongLongAndOverflow(number, &overflow);
  return overflow == 0 ? Fit::Yes : Fit::TooLarge;
}

// The UTF-8 of a text, or none: half a surrogate pair has none.
std::string_view utf8_of(PyObject* value) {
  Py_ssize_t size = 0;
  const char* text = PyUnicode_Check(value) ? PyUnicode_AsUTF8AndSize(value, &size) : nullptr;
  if (!text) PyErr_Clear();
  return text ? std::string_view(text, static_cast<std::size_t>(size)) : std::string_view();
}

// Whether an attribute is an integer of Python's own type, of at most 64 bits.
bool read_exact(PyObject* object, PyObject* name, std::int64_t& integer) {
  const Ref number = attribute(object, name);
  return PyLong_CheckExact(number.get()) && narrow(number.get(), integer) == Fit::Yes;
}

}  // namespace

const Classes& classes() {
  static const Classes* imported = new Classes;
  return *imported;
}

std::string shown(py::handle value) {
  return py::cast<std::string>(py::module_::import("planq.errors").attr("shown")(value));
}

PyObject* PythonSource::keep(PyObject* owned) {
  kept_.emplace_back(owned);
  return owned;
}

Fit PythonSource::integer(Value value, std::int64_t& integer) {
  if (PyLong_CheckExact(value)) return narrow(value, integer);
  plain = false;
  const Ref number(PyNumber_Index(value));
  if (number) return narrow(number.get(), integer);
  drop_type_error();
  return Fit::No;
}

Fit PythonSource::number(Value value, double& number) const {
  if (PyBool_Check(value) || !(PyFloat_Check(value) || PyLong_Check(value))) return Fit::No;
  number = PyFloat_AsDouble(value);
  const bool failed = PyErr_Occurred() != nullptr;
  PyErr_Clear();
  return failed || number != number ? Fit::TooLarge : Fit::Yes;
}

bool PythonSource::text(Value value, std::string& text) const {
  const std::string_view letters = utf8_of(value);
  text = letters;
  return letters.data() != nullptr;
}

int PythonSource::member(const Vocabulary& vocabulary, Value value) const {
  return Members::of(vocabulary).find(value);
}

// What can be walked through as a tuple; text is not meant to be.
bool PythonSource::items(Value value, Items& items) {
  if (PyTuple_CheckExact(value)) {
    items.tuple_ = Ref(Py_NewRef(value));
    return true;
  }
  plain = false;
  if (PyUnicode_Check(value) || !Py_TYPE(value)->tp_iter) return false;
  items.tuple_ = Ref(PySequence_Tuple(value));
  if (!items.tuple_) drop_type_error();
  return static_cast<bool>(items.tuple_);
}

bool PythonSource::scope(Value value, WideScope& scope) {
  if (!Py_IS_TYPE(value, reinterpret_cast<PyTypeObject*>(classes().scope.ptr()))) {
    plain = false;
    return false;
  }
  const PartNames& parts = part_names();
  const Ref name = attribute(value, parts.kind);
  const int kind = enumerator_named(kVocabulary<ScopeKind>, utf8_of(name.get()));
  if (kind >= 0 && name_of(static_cast<ScopeKind>(kind)) == utf8_of(name.get()) &&
      read_exact(value, parts.axis, scope.axis) && read_exact(value, parts.size, scope.size) &&
      read_exact(value, parts.rows, scope.rows)) {
    scope.kind = static_cast<ScopeKind>(kind);
    return true;
  }
  plain = false;
  return false;
}

bool PythonSource::dim(Value value, Value& name, Value& max) {
  if (PyDict_Check(value)) {
    plain = false;
    return false;
  }
  name = keep(attribute(value, part_names().name).release());
  max = keep(attribute(value, part_names().max).release());
  return true;
}

// A scope that needs reading is read as the object that it would be written as.
bool PythonSource::object(Value value, Value& object) {
  object = value;
  if (PyDict_Check(value)) return true;
  if (!py::isinstance(value, classes().scope)) return false;
  object = keep(py::object(py::handle(value).attr("to_dict")()).release().ptr());
  return true;
}

bool PythonSource::find(Value object, std::string_view name, Value& found) {
  const py::str key(name.data(), name.size());
  found = PyDict_GetItemWithError(object, key.ptr());
  if (found) keep(Py_NewRef(found));
  if (PyErr_Occurred()) throw py::error_already_set();
  return found != nullptr;
}

bool PythonSource::is_identifier(const std::string& name) const {
  return PyUnicode_IsIdentifier(py::str(name).ptr()) == 1;
}

std::string PythonSource::field_of(Value name) const {
  return py::cast<std::string>(
      py::module_::import("planq.errors").attr("as_field")(py::handle(name)));
}

std::string PythonSource::hint(Value value, const std::vector<std::string>& names) const {
  if (!PyUnicode_Check(value)) return "";
  return py::cast<std::string>(
      py::module_::import("planq._nearest").attr("did_you_mean")(py::handle(value), names));
}

}  // namespace planq::python
