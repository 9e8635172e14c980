#include "bindings/python/vocabularies.h"

#include <memory>
#include <string>

#include "bindings/python/errors.h"

namespace planq::python {

namespace py = pybind11;

namespace {

// Whether an object stays what it is and is one of few: a dtype, or the class of one.
bool is_lasting(py::handle value) {
  if (PyType_Check(value.ptr())) return true;
  const py::object module = py::type::of(value).attr("__module__");
  const std::string name = py::isinstance<py::str>(module) ? py::cast<std::string>(module) : "";
  return name == "torch" || name.starts_with("numpy");
}

}  // namespace

void refuse(std::string_view field, const std::string& text) {
  raise_descriptor_error({std::string(field), text});
  throw py::error_already_set();
}

std::string shown(py::handle value) {
  return py::cast<std::string>(py::module_::import("planq.errors").attr("shown")(value));
}

int enumerator_named(const Vocabulary& vocabulary, PyObject* name) {
  Py_ssize_t size = 0;
  const char* text = PyUnicode_Check(name) ? PyUnicode_AsUTF8AndSize(name, &size) : nullptr;
  if (!text) {
    PyErr_Clear();  // half a surrogate pair is no UTF-8, and no name
    return -1;
  }
  const std::string_view view(text, static_cast<std::size_t>(size));
  for (std::size_t i = 0; i < vocabulary.names.size(); ++i)
    if (vocabulary.names[i] == view && !view.empty()) return static_cast<int>(i);
  return -1;
}

Members::Members(const Vocabulary& vocabulary) : type_(vocabulary.type) {
  const py::module_ module = py::module_::import("planq.dtypes");
  const py::object type = module.attr("VOCABULARIES")[py::str(type_.data(), type_.size())];
  py::list names;
  for (const std::string_view name : vocabulary.names) {
    if (name.empty()) {
      members_.push_back(py::none());
      continue;
    }
    names.append(py::str(name.data(), name.size()));
    by_name_[names[names.size() - 1]] = members_.size();
    members_.push_back(
        py::getattr(type, py::str(name.data(), name.size()).attr("upper")(), py::none()));
  }
  py::list declared;
  for (const py::handle member : type) declared.append(member.attr("name").attr("lower")());
  if (!declared.equal(names))
    throw py::type_error("planq." + std::string(type_) + " has the members " +
                         py::cast<std::string>(py::str(declared)) + ", the native half " +
                         py::cast<std::string>(py::str(names)));
  parse_ =
      py::hasattr(type, "parse")
          ? py::object(type.attr("parse"))
          : py::module_::import("functools").attr("partial")(module.attr("parse_member"), type);
}

const Members& Members::of(const Vocabulary& vocabulary) {
  static auto* known = new std::vector<std::unique_ptr<Members>>;
  for (const auto& members : *known)
    if (members->type_ == vocabulary.type) return *members;
  known->push_back(std::unique_ptr<Members>(new Members(vocabulary)));
  return *known->back();
}

int Members::find(PyObject* member) const {
  for (std::size_t i = 0; i < members_.size(); ++i)
    if (members_[i].ptr() == member && member != Py_None) return static_cast<int>(i);
  return -1;
}

std::uint8_t Members::read(std::string_view field, py::handle value) const {
  if (const int found = find(value.ptr()); found >= 0) return static_cast<std::uint8_t>(found);
  if (PyUnicode_CheckExact(value.ptr())) {
    PyObject* found = PyDict_GetItemWithError(by_name_.ptr(), value.ptr());
    if (found) return static_cast<std::uint8_t>(PyLong_AsLong(found));
    if (PyErr_Occurred()) throw py::error_already_set();
  }
  for (const auto& [object, enumerator] : foreign_)
    if (object.ptr() == value.ptr()) return enumerator;
  const py::object member = parse_(value, py::str(field.data(), field.size()));
  const int found = find(member.ptr());
  if (found < 0) refuse(field, "unknown value " + shown(value));
  constexpr std::size_t kMostForeign = 64;
  if (foreign_.size() < kMostForeign && !PyUnicode_Check(value.ptr()) && is_lasting(value))
    foreign_.emplace_back(py::reinterpret_borrow<py::object>(value), found);
  return static_cast<std::uint8_t>(found);
}

py::object Members::operator[](std::uint8_t enumerator) const {
  return enumerator < members_.size() ? members_[enumerator] : py::none();
}

}  // namespace planq::python
