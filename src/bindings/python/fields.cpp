#include "bindings/python/fields.h"

#include <pybind11/stl.h>

#include <array>
#include <cmath>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "bindings/python/ref.h"
#include "bindings/python/source.h"
#include "bindings/python/vocabularies.h"

namespace planq::python {

namespace py = pybind11;

namespace {

PyObject* interned(std::string_view text) {
  PyObject* name = PyUnicode_FromStringAndSize(text.data(), static_cast<Py_ssize_t>(text.size()));
  PyUnicode_InternInPlace(&name);
  return name;
}

// A field, and what Python calls it.
struct Attribute {
  const Field* field;
  PyObject* name;
};
using Attributes = std::vector<Attribute>;
constexpr std::size_t kMostFields = Descriptor::kCapacity;  // none is smaller than a byte

const Attributes& attributes_of(std::span<const Field> fields) {
  static auto* known = new std::unordered_map<const Field*, Attributes>;
  if (const auto found = known->find(fields.data()); found != known->end()) return found->second;
  Attributes attributes;
  for (const Field& field : fields) attributes.push_back({&field, interned(field.name)});
  return known->emplace(fields.data(), std::move(attributes)).first->second;
}

Ref attribute_of(py::handle instance, PyObject* name) {
  Ref value(PyObject_GetAttr(instance.ptr(), name));
  if (!value) throw py::error_already_set();
  return value;
}

void check(const Fault& fault) {
  if (!fault.ok()) refuse(fault);
}

py::object dim_object(const DimInfo& dim) {
  return classes().dim(py::str(dim.name.data()), py::int_(dim.max));
}

py::object extent_object(const Shape& shape, int axis, const Descriptor* descriptor) {
  const DimInfo* dim =
      descriptor ? descriptor->dim_at(shape.dims[static_cast<std::size_t>(axis)]) : nullptr;
  return dim ? dim_object(*dim) : py::int_(shape[axis]);
}

py::object shape_object(const Shape& shape, const Descriptor* descriptor) {
  py::tuple dims(shape.rank);
  for (int axis = 0; axis < shape.rank; ++axis) dims[axis] = extent_object(shape, axis, descriptor);
  return dims;
}

py::object shapes_object(const ShapeList& list) {
  py::tuple shapes(list.count);
  for (std::int64_t i = 0; i < list.count; ++i) shapes[i] = shape_object(list.data[i], nullptr);
  return shapes;
}

py::object integers_object(const IntegerList& list) {
  py::tuple integers(list.count);
  for (std::int64_t i = 0; i < list.count; ++i) integers[i] = py::int_(list.data[i]);
  return integers;
}

py::object members_object(const Field& field, const IntegerList& list) {
  py::tuple members(list.count);
  for (std::int64_t i = 0; i < list.count; ++i)
    members[i] = Members::of(field.vocabulary)[static_cast<std::uint8_t>(list.data[i])];
  return members;
}

py::object scope_object(const WideScope& scope) {
  const std::string_view kind = name_of(scope.kind);
  return classes().scope(py::str(kind.data(), kind.size()), scope.axis, scope.size, scope.rows);
}

// A number without a fraction reads as an integer.
py::object number_object(double number) {
  if (std::isnan(number)) return py::none();
  const bool whole = std::isfinite(number) && number == std::trunc(number);
  return py::reinterpret_steal<py::object>(whole ? PyLong_FromDouble(number)
                                                 : PyFloat_FromDouble(number));
}

// What the attribute holds for the field's value in memory. `descriptor` is the one that the memory
// belongs to, for its extras; null: there are none.
py::object value_object(const Attribute& attribute, const void* value,
                        const Descriptor* descriptor) {
  switch (attribute.field->kind) {
    case FieldKind::Shape:
      return shape_object(*static_cast<const Shape*>(value), descriptor);
    case FieldKind::ShapeList:
      return shapes_object(*static_cast<const ShapeList*>(value));
    case FieldKind::IntegerList:
      return integers_object(*static_cast<const IntegerList*>(value));
    case FieldKind::EnumerationList:
      return members_object(*attribute.field, *static_cast<const IntegerList*>(value));
    case FieldKind::Scope: {
      const auto& scope = *static_cast<const Scope*>(value);
      return scope_object({scope.kind, scope.axis, scope.size, scope.rows});
    }
    case FieldKind::DType:
    case FieldKind::Enumeration:
      return Members::of(attribute.field->vocabulary)[*static_cast<const std::uint8_t*>(value)];
    case FieldKind::Number:
      return number_object(*static_cast<const double*>(value));
    case FieldKind::Flag:
      return py::bool_(*static_cast<const bool*>(value));
    case FieldKind::Integer:
      return py::int_(*static_cast<const std::int64_t*>(value));
    case FieldKind::Count: {
      const std::int64_t count = *static_cast<const std::int64_t*>(value);
      return count == 0 ? py::object(py::none()) : py::object(py::int_(count));
    }
    case FieldKind::Limit:
      return py::cast(*static_cast<const std::optional<std::int64_t>*>(value));
    case FieldKind::Text: {
      const auto& text = *static_cast<const std::string*>(value);
      return text.empty() ? py::object(py::none()) : py::object(py::str(text));
    }
  }
  return py::none();
}

py::object value_object(const Attribute& attribute, const Descriptor& descriptor) {
  return value_object(attribute, descriptor.storage.data() + attribute.field->offset, &descriptor);
}

// As object.__setattr__ does it: a descriptor's own refuses.
void set_attribute(py::handle instance, PyObject* name, const py::object& value) {
  if (PyObject_GenericSetAttr(instance.ptr(), name, value.ptr()) != 0)
    throw py::error_already_set();
}

const Operator& operator_of(py::handle instance) {
  static PyObject* const attribute = interned("operator");
  const Ref name = attribute_of(instance, attribute);
  PythonSource source;
  std::string text;
  if (source.text(name.get(), text))
    if (const Operator* op = find_operator(text)) return *op;
  refuse(unknown_operator(source, name.get()));
}

void set_native(py::handle instance, const py::object& native) {
  static PyObject* const attribute = interned("_native");
  set_attribute(instance, attribute, native);
}

// Whether a value of this kind that the source found plain may stay in its attribute.
bool may_be_plain(FieldKind kind) {
  return kind == FieldKind::Shape || kind == FieldKind::ShapeList ||
         kind == FieldKind::IntegerList || kind == FieldKind::Scope;
}

}  // namespace

void resolve_descriptor(py::handle instance) {
  const Operator& op = operator_of(instance);
  const Attributes& attributes = attributes_of(op.fields);
  auto descriptor = std::make_unique<Descriptor>();
  descriptor->op = &op;
  PythonSource source;
  FieldReader<PythonSource> reader(source, descriptor->storage.data());
  // Tuples and objects that stay as they are need not be made again.
  std::array<bool, kMostFields> plain{};
  for (std::size_t i = 0; i < attributes.size(); ++i) {
    const Field& field = *attributes[i].field;
    source.plain = may_be_plain(field.kind);
    if (!reader.read(field, attribute_of(instance, attributes[i].name).get())) refuse(reader.fault);
    plain[i] = source.plain;
  }
  descriptor->extras = reader.take_extras();
  const auto parsed = descriptor->storage;
  check(resolve(*descriptor));
  for (std::size_t i = 0; i < attributes.size(); ++i) {
    const Field& field = *attributes[i].field;
    const bool same = std::memcmp(parsed.data() + field.offset,
                                  descriptor->storage.data() + field.offset, field.size) == 0;
    if (plain[i] && same) continue;
    set_attribute(instance, attributes[i].name, value_object(attributes[i], *descriptor));
  }
  set_native(instance, py::cast(std::move(descriptor)));
}

void resolve_preference(py::handle instance) {
  auto preference = std::make_unique<Preference>();
  auto* memory = reinterpret_cast<std::byte*>(preference.get());
  PythonSource source;
  FieldReader<PythonSource> reader(source, memory);
  for (const Attribute& attribute : attributes_of(preference_fields())) {
    const Field& field = *attribute.field;
    if (!reader.read(field, attribute_of(instance, attribute.name).get())) refuse(reader.fault);
    set_attribute(instance, attribute.name,
                  value_object(attribute, memory + field.offset, nullptr));
  }
  set_native(instance, py::cast(std::move(preference)));
}

std::string_view check_descriptor_values(py::handle values) {
  PythonSource source;
  const Operator* op = nullptr;
  check(check_descriptor(source, values.ptr(), op));
  return op->name;
}

void check_preference_values(py::handle values) {
  PythonSource source;
  check(check_preference(source, values.ptr()));
}

void check_field_names(const std::string& whose, const py::dict& given) {
  PythonSource source;
  const Operator* op = find_operator(whose);
  check(check_names(source, given.ptr(), whose, op ? op->fields : preference_fields()));
}

void refuse_operator(py::handle name) {
  PythonSource source;
  refuse(unknown_operator(source, name.ptr()));
}

py::object read_scope(py::handle value, const std::string& field) {
  PythonSource source;
  FieldReader<PythonSource> reader(source);
  WideScope scope;
  if (!reader.read_scope(field, value.ptr(), scope)) refuse(reader.fault);
  return scope_object(scope);
}

py::object read_dim(py::handle value, const std::string& field) {
  PythonSource source;
  FieldReader<PythonSource> reader(source);
  DimInfo dim;
  if (!reader.read_dim(field, value.ptr(), dim)) refuse(reader.fault);
  return dim_object(dim);
}

std::int64_t read_maximum(py::handle name, py::handle maximum) {
  PythonSource source;
  FieldReader<PythonSource> reader(source);
  DimInfo dim;
  if (!reader.read_dim("dim", name.ptr(), maximum.ptr(), dim)) refuse(reader.fault);
  return dim.max;
}

py::dict field_values(const Descriptor& descriptor) {
  py::dict values;
  for (const Attribute& attribute : attributes_of(descriptor.op->fields))
    values[attribute.name] = value_object(attribute, descriptor);
  return values;
}

py::tuple field_table(std::span<const Field> fields) {
  py::list table;
  for (const Attribute& attribute : attributes_of(fields)) {
    const Field& field = *attribute.field;
    const std::string_view kind = name_of(field.kind);
    const py::object initial =
        field.is_required ? py::none() : value_object(attribute, field.initial, nullptr);
    table.append(py::make_tuple(py::handle(attribute.name), py::str(kind.data(), kind.size()),
                                field.is_required, initial,
                                py::str(field.source.data(), field.source.size())));
  }
  return py::tuple(table);
}

}  // namespace planq::python
