#include "bindings/python/fields.h"

#include <string>

#include "bindings/python/errors.h"

namespace planq::python {

namespace py = pybind11;

namespace {

[[noreturn]] void fault(std::string_view field, const std::string& text) {
  raise_descriptor_error({std::string(field), text});
  throw py::error_already_set();
}

// In Python's words, which are bounded and never raise: values are anybody's.
std::string text_of(py::handle value) {
  return py::cast<std::string>(py::module_::import("planq.errors").attr("shown")(value));
}

std::int64_t integer(std::string_view field, py::handle value) {
  const long long number = PyLong_Check(value.ptr()) ? PyLong_AsLongLong(value.ptr()) : -1;
  if (!PyLong_Check(value.ptr()) || PyErr_Occurred()) {
    PyErr_Clear();
    fault(field, "expected an integer of at most 64 bits, got " + text_of(value));
  }
  return number;
}

Shape shape_of(std::string_view field, py::handle value) {
  if (!PyTuple_Check(value.ptr()))
    fault(field, "expected a tuple of integers, got " + text_of(value));
  const auto tuple = py::reinterpret_borrow<py::tuple>(value);
  if (tuple.size() > kMaxRank)
    fault(field, "expected at most " + std::to_string(kMaxRank) + " axes, got " +
                     std::to_string(tuple.size()));
  Shape shape;
  shape.rank = static_cast<std::int32_t>(tuple.size());
  for (int axis = 0; axis < shape.rank; ++axis) shape[axis] = integer(field, tuple[axis]);
  return shape;
}

Scope scope_of(std::string_view field, py::handle value) {
  const auto tuple = py::cast<py::tuple>(value);
  const std::int64_t axis = integer(field, tuple[1]);
  // An axis beyond 32 bits is outside of every shape; keep it so without wrapping.
  const auto narrow = static_cast<std::int32_t>(axis < -1000 ? -1000 : axis > 1000 ? 1000 : axis);
  return {enumerator<ScopeKind>(field, tuple[0]), narrow, integer(field, tuple[2]),
          integer(field, tuple[3])};
}

double bound_of(std::string_view field, py::handle value) {
  if (value.is_none()) return kUnsetBound;
  const double number = PyFloat_AsDouble(value.ptr());
  if (PyErr_Occurred() || number != number) {
    PyErr_Clear();
    fault(field, "expected a number, got " + text_of(value));
  }
  return number;
}

template <class T>
T& at(Descriptor& descriptor, const Field& field) {
  return *reinterpret_cast<T*>(descriptor.storage.data() + field.offset);
}
template <class T>
const T& at(const Descriptor& descriptor, const Field& field) {
  return *reinterpret_cast<const T*>(descriptor.storage.data() + field.offset);
}

template <class E>
py::object name_object(const Descriptor& descriptor, const Field& field) {
  return py::str(std::string(name_of(at<E>(descriptor, field))));
}

py::object shape_object(const Shape& shape) {
  py::tuple dims(shape.rank);
  for (int axis = 0; axis < shape.rank; ++axis) dims[axis] = py::int_(shape[axis]);
  return dims;
}

}  // namespace

template <class E>
E enumerator(std::string_view field, py::handle value) {
  const char* text = PyUnicode_Check(value.ptr()) ? PyUnicode_AsUTF8(value.ptr()) : nullptr;
  if (!text) PyErr_Clear();  // half a surrogate pair is no UTF-8, and no name
  for (std::size_t i = 0; text && i < kNames<E>.size(); ++i)
    if (kNames<E>[i] == text) return static_cast<E>(i);
  fault(field, "unknown value " + text_of(value));
}

template Backend enumerator<Backend>(std::string_view, py::handle);
template Determinism enumerator<Determinism>(std::string_view, py::handle);

void write_field(Descriptor& descriptor, const Field& field, py::handle value) {
  switch (field.kind) {
    case FieldKind::Shape:
      at<Shape>(descriptor, field) = shape_of(field.name, value);
      return;
    case FieldKind::Scope:
      at<Scope>(descriptor, field) = scope_of(field.name, value);
      return;
    case FieldKind::DType:
      at<DType>(descriptor, field) =
          value.is_none() ? DType::Unset : enumerator<DType>(field.name, value);
      return;
    case FieldKind::Mode:
      at<Mode>(descriptor, field) = enumerator<Mode>(field.name, value);
      return;
    case FieldKind::Quotient:
      at<Quotient>(descriptor, field) = enumerator<Quotient>(field.name, value);
      return;
    case FieldKind::NonFinite:
      at<NonFinite>(descriptor, field) = enumerator<NonFinite>(field.name, value);
      return;
    case FieldKind::NibbleOrder:
      at<NibbleOrder>(descriptor, field) = enumerator<NibbleOrder>(field.name, value);
      return;
    case FieldKind::Codebook:
      at<Codebook>(descriptor, field) = enumerator<Codebook>(field.name, value);
      return;
    case FieldKind::Rounding:
      at<Rounding>(descriptor, field) = enumerator<Rounding>(field.name, value);
      return;
    case FieldKind::Bound:
      at<double>(descriptor, field) = bound_of(field.name, value);
      return;
    case FieldKind::Bool:
      at<bool>(descriptor, field) = PyObject_IsTrue(value.ptr()) == 1;
      return;
    case FieldKind::Int64:
      at<std::int64_t>(descriptor, field) = value.is_none() ? 0 : integer(field.name, value);
      return;
  }
}

py::object read_field(const Descriptor& descriptor, const Field& field) {
  switch (field.kind) {
    case FieldKind::Shape:
      return shape_object(at<Shape>(descriptor, field));
    case FieldKind::Scope: {
      const Scope& scope = at<Scope>(descriptor, field);
      return py::make_tuple(std::string(name_of(scope.kind)), scope.axis, scope.size, scope.rows);
    }
    case FieldKind::DType:
      return name_object<DType>(descriptor, field);
    case FieldKind::Mode:
      return name_object<Mode>(descriptor, field);
    case FieldKind::Quotient:
      return name_object<Quotient>(descriptor, field);
    case FieldKind::NonFinite:
      return name_object<NonFinite>(descriptor, field);
    case FieldKind::NibbleOrder:
      return name_object<NibbleOrder>(descriptor, field);
    case FieldKind::Codebook:
      return name_object<Codebook>(descriptor, field);
    case FieldKind::Rounding:
      return name_object<Rounding>(descriptor, field);
    case FieldKind::Bound:
      return py::float_(at<double>(descriptor, field));
    case FieldKind::Bool:
      return py::bool_(at<bool>(descriptor, field));
    case FieldKind::Int64:
      return py::int_(at<std::int64_t>(descriptor, field));
  }
  return py::none();
}

}  // namespace planq::python
