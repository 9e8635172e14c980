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

#include "bindings/python/errors.h"
#include "bindings/python/ref.h"
#include "bindings/python/vocabularies.h"

namespace planq::python {

namespace py = pybind11;

namespace {

// The Python classes of values that are more than a number or a name.
struct Classes {
  py::object scope = py::module_::import("planq.scope").attr("Scope");
  py::object dim = py::module_::import("planq.dim").attr("Dim");
};
const Classes& classes() {
  static const Classes* imported = new Classes;
  return *imported;
}

PyObject* interned(std::string_view text) {
  PyObject* name = PyUnicode_FromStringAndSize(text.data(), static_cast<Py_ssize_t>(text.size()));
  PyUnicode_InternInPlace(&name);
  return name;
}

struct FieldNames {
  PyObject* op = interned("operator");
  PyObject* native = interned("_native");
  PyObject* kind = interned("kind");
  PyObject* axis = interned("axis");
  PyObject* size = interned("size");
  PyObject* rows = interned("rows");
  PyObject* name = interned("name");
  PyObject* max = interned("max");
};
const FieldNames& field_names() {
  static const FieldNames* all = new FieldNames;
  return *all;
}

// A field, and what Python has for it.
struct Attribute {
  const Field* field;
  PyObject* name;
  const Members* members;  // of a DType or an enumeration
};
using Attributes = std::vector<Attribute>;
constexpr std::size_t kMostFields = Descriptor::kCapacity;  // none is smaller than a byte

const Attributes& attributes_of(std::span<const Field> fields) {
  static auto* known = new std::unordered_map<const Field*, Attributes>;
  if (const auto found = known->find(fields.data()); found != known->end()) return found->second;
  Attributes attributes;
  for (const Field& field : fields)
    attributes.push_back(
        {&field, interned(field.name),
         field.vocabulary.names.empty() ? nullptr : &Members::of(field.vocabulary)});
  return known->emplace(fields.data(), std::move(attributes)).first->second;
}

Ref attribute(PyObject* object, PyObject* name) {
  Ref value(PyObject_GetAttr(object, name));
  if (!value) throw py::error_already_set();
  return value;
}

// For a question that TypeError answers: false. Other errors are nobody's answer.
bool drop_type_error() {
  if (!PyErr_ExceptionMatches(PyExc_TypeError)) throw py::error_already_set();
  PyErr_Clear();
  return false;
}

bool is_integer(PyObject* value, Ref& integer) {
  integer = Ref(PyNumber_Index(value));
  return integer ? true : drop_type_error();
}

std::int64_t narrow(std::string_view field, PyObject* integer) {
  const long long number = PyLong_AsLongLong(integer);
  if (number == -1 && PyErr_Occurred()) {
    PyErr_Clear();
    refuse(field, "expected an integer of at most 64 bits, got " + shown(integer));
  }
  return number;
}

std::int64_t read_integer(std::string_view field, PyObject* value) {
  if (PyLong_CheckExact(value)) return narrow(field, value);
  Ref integer;
  if (!is_integer(value, integer)) refuse(field, "expected an integer, got " + shown(value));
  return narrow(field, integer.get());
}

std::int64_t read_count(std::string_view field, PyObject* value) {
  if (value == Py_None) return 0;
  const std::int64_t count = read_integer(field, value);
  if (count == 0) refuse(field, "expected a positive integer or None, got 0");
  return count;
}

double read_number(const Field& field, PyObject* value) {
  const double initial = *static_cast<const double*>(field.initial);
  const bool none_allowed = !field.is_required && initial != initial;
  if (value == Py_None && none_allowed) return kUnsetBound;
  if (PyBool_Check(value) || !(PyFloat_Check(value) || PyLong_Check(value)))
    refuse(field.name, std::string("expected a number") + (none_allowed ? " or None" : "") +
                           ", got " + shown(value));
  const double number = PyFloat_AsDouble(value);
  if (PyErr_Occurred() || number != number) {
    PyErr_Clear();
    refuse(field.name, "expected a number, got " + shown(value));
  }
  return number;
}

// Of a DType or an enumeration.
std::uint8_t read_member(const Attribute& attribute, PyObject* value) {
  const Field& field = *attribute.field;
  if (value == Py_None && field.may_be_unset())
    return *static_cast<const std::uint8_t*>(field.initial);
  return attribute.members->read(field.name, value);
}

bool read_flag(std::string_view field, PyObject* value) {
  if (!PyBool_Check(value)) refuse(field, "expected True or False, got " + shown(value));
  return value == Py_True;
}

// What can be walked through as a tuple; text is not meant to be.
Ref read_sequence(std::string_view field, PyObject* value, const char* of) {
  if (PyTuple_CheckExact(value)) return Ref(Py_NewRef(value));
  Ref tuple;
  if (!PyUnicode_Check(value) && Py_TYPE(value)->tp_iter) {
    tuple = Ref(PySequence_Tuple(value));
    if (tuple) return tuple;
    drop_type_error();
  }
  refuse(field, std::string("expected a sequence of ") + of + ", got " + shown(value));
}

std::optional<std::int64_t> read_limit(std::string_view field, PyObject* value) {
  if (value == Py_None) return std::nullopt;
  const long long most = PyLong_CheckExact(value) ? PyLong_AsLongLong(value) : -1;
  PyErr_Clear();
  if (most < 0)
    refuse(field, "expected an integer of at least 0 and at most 63 bits, got " + shown(value));
  return most;
}

std::string read_text(std::string_view field, PyObject* value) {
  if (value == Py_None) return "";
  Py_ssize_t size = 0;
  const char* text = PyUnicode_Check(value) ? PyUnicode_AsUTF8AndSize(value, &size) : nullptr;
  PyErr_Clear();  // half a surrogate pair is no UTF-8, and no name
  if (size == 0) refuse(field, "expected a name, or None for any, got " + shown(value));
  return {text, static_cast<std::size_t>(size)};
}

// Fills the memory that a table of fields describes, field by field, and gathers what has no place
// there.
class FieldReader {
 public:
  explicit FieldReader(void* memory) : memory_(static_cast<std::byte*>(memory)) {}

  // Whether the attribute already holds what the field's value is read back as.
  bool read(const Attribute& attribute, PyObject* value);
  std::shared_ptr<const DescriptorExtras> take_extras() { return std::move(extras_); }

 private:
  template <class T>
  T& at(const Field& field) {
    return *reinterpret_cast<T*>(memory_ + field.offset);
  }
  DescriptorExtras& extras() {
    if (!extras_) extras_ = std::make_unique<DescriptorExtras>();
    return *extras_;
  }
  void store(const Attribute& attribute, PyObject* value);
  Scope read_scope(std::string_view field, PyObject* value);
  Shape read_shape(const Field& field, PyObject* value);
  ShapeList read_shapes(const Field& field, PyObject* value);
  IntegerList read_integers(const Field& field, PyObject* value);
  std::int64_t read_extent(const Field& field, PyObject* shape, PyObject* key_range, int axis,
                           int rank);
  std::int64_t read_dim(const Field& field, PyObject* value, int axis, int rank);
  std::uint8_t dim_named(std::string_view field, const DimInfo& dim);

  std::byte* memory_;
  std::unique_ptr<DescriptorExtras> extras_;
  bool plain_ = false;  // of the field that is being read
};

Scope FieldReader::read_scope(std::string_view field, PyObject* value) {
  py::object scope = py::reinterpret_borrow<py::object>(value);
  const auto kind_of = [&] {
    return enumerator_named(kVocabulary<ScopeKind>,
                            attribute(scope.ptr(), field_names().kind).get());
  };
  int kind = py::type::handle_of(scope).is(classes().scope) ? kind_of() : -1;
  if (kind < 0) {
    plain_ = false;
    scope = classes().scope.attr("parse")(scope, py::str(field.data(), field.size()));
    kind = kind_of();
  }
  const auto integer = [&](PyObject* name) {
    const Ref number = attribute(scope.ptr(), name);
    plain_ = plain_ && PyLong_CheckExact(number.get());
    return read_integer(field, number.get());
  };
  const std::int64_t axis = integer(field_names().axis);
  // An axis beyond 32 bits is outside of every shape; keep it so without wrapping.
  const auto near = static_cast<std::int32_t>(axis < -1000 ? -1000 : axis > 1000 ? 1000 : axis);
  return {static_cast<ScopeKind>(kind), near, integer(field_names().size),
          integer(field_names().rows)};
}

std::uint8_t FieldReader::dim_named(std::string_view field, const DimInfo& dim) {
  std::vector<DimInfo>& dims = extras().dims;
  for (std::size_t i = 0; i < dims.size(); ++i) {
    if (dims[i].name != dim.name) continue;
    if (dims[i].max != dim.max)
      refuse(field, "the Dim '" + std::string(dim.name.data()) + "' has the maximum " +
                        std::to_string(dims[i].max) + " and " + std::to_string(dim.max));
    return static_cast<std::uint8_t>(i);
  }
  if (dims.size() == kMaxDims)
    refuse(field, "expected at most " + std::to_string(kMaxDims) + " Dims in a descriptor");
  dims.push_back(dim);
  return static_cast<std::uint8_t>(dims.size() - 1);
}

// The maximum of a Dim, whose place is noted.
std::int64_t FieldReader::read_dim(const Field& field, PyObject* value, int axis, int rank) {
  if (field.kind != FieldKind::Shape)
    refuse(field.name, "expected integers in a list of shapes, got " + shown(value));
  if (axis == rank - 1)
    refuse(field.name, "expected an integer for the last axis, got " + shown(value));
  const Ref name = attribute(value, field_names().name);
  Py_ssize_t size = 0;
  const char* text = PyUnicode_AsUTF8AndSize(name.get(), &size);
  if (!text) throw py::error_already_set();
  DimInfo dim{.name = {},
              .max = read_integer(field.name, attribute(value, field_names().max).get())};
  std::string_view(text, static_cast<std::size_t>(size)).copy(dim.name.data(), dim.name.size() - 1);
  const std::size_t offset = field.offset + offsetof(Shape, dims) + axis * sizeof(std::int64_t);
  const std::uint8_t index = dim_named(field.name, dim);
  extras().uses.push_back({static_cast<std::uint16_t>(offset), index});
  return dim.max;
}

// An extent that is neither an integer of Python's own nor a Dim.
std::int64_t FieldReader::read_extent(const Field& field, PyObject* shape, PyObject* key_range,
                                      int axis, int rank) {
  if (PyDict_Check(key_range)) {
    const py::str name(field.name.data(), field.name.size());
    const py::object dim = classes().dim.attr("parse")(py::handle(key_range), name);
    return read_dim(field, dim.ptr(), axis, rank);
  }
  Ref integer;
  if (!is_integer(key_range, integer))
    refuse(field.name, "expected a sequence of integers, got " + shown(shape));
  return narrow(field.name, integer.get());
}

Shape FieldReader::read_shape(const Field& field, PyObject* value) {
  const Ref tuple = read_sequence(field.name, value, "integers");
  plain_ = plain_ && tuple.get() == value;
  const Py_ssize_t rank = PyTuple_GET_SIZE(tuple.get());
  if (rank > kMaxRank)
    refuse(field.name,
           "expected at most " + std::to_string(kMaxRank) + " axes, got " + std::to_string(rank));
  Shape shape;
  shape.rank = static_cast<std::int32_t>(rank);
  for (int axis = 0; axis < shape.rank; ++axis) {
    PyObject* key_range = PyTuple_GET_ITEM(tuple.get(), axis);
    if (PyLong_CheckExact(key_range)) {
      shape[axis] = narrow(field.name, key_range);
    } else if (Py_IS_TYPE(key_range, reinterpret_cast<PyTypeObject*>(classes().dim.ptr()))) {
      shape[axis] = read_dim(field, key_range, axis, shape.rank);
    } else {
      plain_ = false;
      shape[axis] = read_extent(field, value, key_range, axis, shape.rank);
    }
  }
  return shape;
}

ShapeList FieldReader::read_shapes(const Field& field, PyObject* value) {
  const Ref tuple = read_sequence(field.name, value, "shapes");
  plain_ = plain_ && tuple.get() == value;
  std::vector<Shape> shapes;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(tuple.get()); ++i)
    shapes.push_back(read_shape(field, PyTuple_GET_ITEM(tuple.get(), i)));
  const std::vector<Shape>& kept = extras().lists.emplace_back(std::move(shapes));
  return {kept.data(), static_cast<std::int64_t>(kept.size())};
}

IntegerList FieldReader::read_integers(const Field& field, PyObject* value) {
  const Ref tuple = read_sequence(field.name, value, "integers");
  plain_ = plain_ && tuple.get() == value;
  std::vector<std::int64_t> integers;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(tuple.get()); ++i) {
    PyObject* item = PyTuple_GET_ITEM(tuple.get(), i);
    Ref integer;
    if (!is_integer(item, integer))
      refuse(field.name, "expected a sequence of integers, got " + shown(value));
    plain_ = plain_ && PyLong_CheckExact(item);
    integers.push_back(narrow(field.name, integer.get()));
  }
  const std::vector<std::int64_t>& kept = extras().integers.emplace_back(std::move(integers));
  return {kept.data(), static_cast<std::int64_t>(kept.size())};
}

bool FieldReader::read(const Attribute& attribute, PyObject* value) {
  const FieldKind kind = attribute.field->kind;
  plain_ = kind == FieldKind::Shape || kind == FieldKind::ShapeList ||
           kind == FieldKind::IntegerList || kind == FieldKind::Scope;
  store(attribute, value);
  return plain_;
}

void FieldReader::store(const Attribute& attribute, PyObject* value) {
  const Field& field = *attribute.field;
  switch (field.kind) {
    case FieldKind::Shape:
      at<Shape>(field) = read_shape(field, value);
      return;
    case FieldKind::ShapeList:
      at<ShapeList>(field) = read_shapes(field, value);
      return;
    case FieldKind::IntegerList:
      at<IntegerList>(field) = read_integers(field, value);
      return;
    case FieldKind::Scope:
      at<Scope>(field) = read_scope(field.name, value);
      return;
    case FieldKind::DType:
    case FieldKind::Enumeration:
      at<std::uint8_t>(field) = read_member(attribute, value);
      return;
    case FieldKind::Number:
      at<double>(field) = read_number(field, value);
      return;
    case FieldKind::Flag:
      at<bool>(field) = read_flag(field.name, value);
      return;
    case FieldKind::Integer:
      at<std::int64_t>(field) = read_integer(field.name, value);
      return;
    case FieldKind::Count:
      at<std::int64_t>(field) = read_count(field.name, value);
      return;
    case FieldKind::Limit:
      at<std::optional<std::int64_t>>(field) = read_limit(field.name, value);
      return;
    case FieldKind::Text:
      at<std::string>(field) = read_text(field.name, value);
      return;
  }
}

py::object extent_object(const Shape& shape, int axis, const Descriptor* descriptor) {
  if (descriptor && descriptor->extras) {
    const auto* key_range = reinterpret_cast<const std::byte*>(&shape.dims[axis]);
    for (const DimUse& use : descriptor->extras->uses) {
      if (descriptor->storage.data() + use.offset != key_range) continue;
      const DimInfo& dim = descriptor->extras->dims[use.dim];
      return classes().dim(py::str(dim.name.data()), py::int_(dim.max));
    }
  }
  return py::int_(shape[axis]);
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

py::object scope_object(const Scope& scope) {
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
    case FieldKind::Scope:
      return scope_object(*static_cast<const Scope*>(value));
    case FieldKind::DType:
    case FieldKind::Enumeration:
      return (*attribute.members)[*static_cast<const std::uint8_t*>(value)];
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
  const Ref name = attribute(instance.ptr(), field_names().op);
  const char* text = PyUnicode_Check(name.get()) ? PyUnicode_AsUTF8(name.get()) : nullptr;
  const Operator* op = text ? find_operator(text) : nullptr;
  if (!op) refuse("op", "no operator is called " + shown(name.get()));
  return *op;
}

}  // namespace

void resolve_descriptor(py::handle instance) {
  const Operator& op = operator_of(instance);
  const Attributes& attributes = attributes_of(op.fields);
  auto descriptor = std::make_unique<Descriptor>();
  descriptor->op = &op;
  FieldReader reader(descriptor->storage.data());
  // Tuples and objects that stay as they are need not be made again.
  std::array<bool, kMostFields> plain{};
  for (std::size_t i = 0; i < attributes.size(); ++i)
    plain[i] = reader.read(attributes[i], attribute(instance.ptr(), attributes[i].name).get());
  descriptor->extras = reader.take_extras();
  const auto parsed = descriptor->storage;
  if (const Fault fault = resolve(*descriptor); !fault.ok()) refuse(fault.field, fault.text);
  for (std::size_t i = 0; i < attributes.size(); ++i) {
    const Field& field = *attributes[i].field;
    const bool same = std::memcmp(parsed.data() + field.offset,
                                  descriptor->storage.data() + field.offset, field.size) == 0;
    if (plain[i] && same) continue;
    set_attribute(instance, attributes[i].name, value_object(attributes[i], *descriptor));
  }
  set_attribute(instance, field_names().native, py::cast(std::move(descriptor)));
}

void resolve_preference(py::handle instance) {
  auto preference = std::make_unique<Preference>();
  auto* memory = reinterpret_cast<std::byte*>(preference.get());
  FieldReader reader(memory);
  for (const Attribute& attribute : attributes_of(preference_fields())) {
    reader.read(attribute, planq::python::attribute(instance.ptr(), attribute.name).get());
    set_attribute(instance, attribute.name,
                  value_object(attribute, memory + attribute.field->offset, nullptr));
  }
  set_attribute(instance, field_names().native, py::cast(std::move(preference)));
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
