#include "bindings/python/json.h"

#include <pybind11/stl.h>

#include <string>
#include <tuple>
#include <vector>

#include "bindings/python/source.h"
#include "core/stored.h"

namespace planq::python {

namespace py = pybind11;

namespace {

std::string json_text(py::handle text) {
  std::string letters;
  if (!PyUnicode_Check(text.ptr()))
    throw py::value_error(std::string(kNotJson) + "expected text, got " + shown(text));
  if (!PythonSource().text(text.ptr(), letters))
    throw py::value_error(std::string(kNotJson) + "text that is not UTF-8");
  return letters;
}

Json parsed(py::handle text) {
  Json value;
  std::string fault;
  if (!parse_json(json_text(text), value, fault)) throw py::value_error(fault);
  return value;
}

// Of the text of a plan, or ValueError that says why it is none.
py::dict stored_values(py::handle text) {
  Json stored;
  const std::string wrong = read_stored(json_text(text), stored);
  if (!wrong.empty()) throw py::value_error(wrong);
  return json_value(stored);
}

// The sentence about the differences of two plans, and each by its name: (stored, now).
std::tuple<std::string, py::dict> compared_values(py::handle stored, py::handle now) {
  const std::vector<Difference> differences = differences_of(parsed(stored), parsed(now));
  py::dict changed;
  for (const Difference& each : differences)
    changed[py::str(each.part)] = py::make_tuple(json_value(each.stored), json_value(each.now));
  return {mismatch_text(differences), changed};
}

}  // namespace

py::object json_value(const Json& value) {
  switch (value.kind()) {
    case Json::Kind::Null:
      return py::none();
    case Json::Kind::Bool:
      return py::bool_(value.flag());
    case Json::Kind::Integer:
      return py::int_(py::str(value.text()));
    case Json::Kind::Real:
      return py::float_(value.real());
    case Json::Kind::Text:
      return py::str(value.text());
    case Json::Kind::List: {
      py::list items;
      for (const Json& item : value.items()) items.append(json_value(item));
      return items;
    }
    case Json::Kind::Object:
      break;
  }
  py::dict items;
  for (std::size_t i = 0; i < value.names().size(); ++i)
    items[py::str(value.names()[i])] = json_value(value.items()[i]);
  return items;
}

void define_json(py::module_& module) {
  module.def(
      "parse_json", [](py::handle text) { return json_value(parsed(text)); }, py::arg("text"));
  module.def("read_stored", stored_values);
  module.def("compare_stored", compared_values);
  module.def("unselected_text", unselected_text);
}

}  // namespace planq::python
