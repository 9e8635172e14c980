#include "bindings/python/vocabularies.h"

#include <memory>

#include "bindings/python/errors.h"
#include "bindings/python/source.h"

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

// The names of a Python enumeration's members, as vocabularies spell them. They are kept.
std::span<const std::string_view> names_of(py::handle type) {
  auto* names = new std::vector<std::string_view>;
  for (const py::handle member : type)
    names->push_back(*new std::string(py::cast<std::string>(member.attr("name").attr("lower")())));
  return *names;
}

}  // namespace

void refuse(const Fault& fault) {
  raise_descriptor_error(fault);
  throw py::error_already_set();
}

Members::Members(const Vocabulary& vocabulary, py::handle type)
    : vocabulary_(vocabulary), type_(type.inc_ref()) {
  for (const std::string_view name : vocabulary.names)
    members_.push_back(
        name.empty() ? py::none()
                     : py::object(type.attr(py::str(name.data(), name.size()).attr("upper")())));
  if (vocabulary.type == kVocabulary<DType>.type)
    name_of_dtype_ = py::module_::import("planq.dtypes").attr("name_of_dtype");
}

const Members& Members::of(const Vocabulary& vocabulary) {
  static auto* known = new std::vector<std::unique_ptr<Members>>;
  for (const auto& members : *known)
    if (members->vocabulary_.names.data() == vocabulary.names.data()) return *members;
  const std::string name(vocabulary.type);
  const py::object type = py::module_::import("planq.dtypes").attr("VOCABULARIES")[name.c_str()];
  py::list declared, native;
  for (const std::string_view each : names_of(type)) declared.append(py::str(each));
  for (const std::string_view each : vocabulary.names)
    if (!each.empty()) native.append(py::str(each));
  if (!declared.equal(native))
    throw py::type_error("planq." + name + " has the members " +
                         py::cast<std::string>(py::str(declared)) + ", the native half " +
                         py::cast<std::string>(py::str(native)));
  known->push_back(std::unique_ptr<Members>(new Members(vocabulary, type)));
  return *known->back();
}

const Members& Members::of(py::handle type) {
  static auto* known = new std::vector<std::unique_ptr<Members>>;
  for (const auto& members : *known)
    if (members->type_.is(type)) return *members;
  const std::string& name = *new std::string(py::cast<std::string>(type.attr("__name__")));
  known->push_back(std::unique_ptr<Members>(new Members({name, names_of(type)}, type)));
  return *known->back();
}

int Members::find(py::handle value) const {
  for (std::size_t i = 0; i < members_.size(); ++i)
    if (members_[i].is(value) && !value.is_none()) return static_cast<int>(i);
  std::string name;
  if (PythonSource().text(value.ptr(), name)) return enumerator_named(vocabulary_, name);
  return name_of_dtype_ && !PyUnicode_Check(value.ptr()) ? find_foreign(value) : -1;
}

int Members::find_foreign(py::handle value) const {
  for (const auto& [object, enumerator] : foreign_)
    if (object.is(value)) return enumerator;
  std::string name;
  const py::object words = name_of_dtype_(value);
  const bool named = PythonSource().text(words.ptr(), name);
  const int found = named ? enumerator_named(vocabulary_, name) : -1;
  constexpr std::size_t kMostForeign = 64;
  if (found >= 0 && foreign_.size() < kMostForeign && is_lasting(value))
    foreign_.emplace_back(py::reinterpret_borrow<py::object>(value), found);
  return found;
}

std::uint8_t Members::read(std::string_view field, py::handle value) const {
  const int found = find(value);
  if (found >= 0) return static_cast<std::uint8_t>(found);
  PythonSource source;
  refuse({std::string(field), expected_member(source, vocabulary_, value.ptr())});
}

py::object Members::operator[](std::uint8_t enumerator) const {
  return enumerator < members_.size() ? members_[enumerator] : py::none();
}

}  // namespace planq::python
