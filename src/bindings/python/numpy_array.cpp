#include "bindings/python/numpy_array.h"

#include <pybind11/numpy.h>

#include <array>

namespace planq::python {
namespace {

namespace py = pybind11;

constexpr DType integer_of(std::size_t bytes) { return bytes == 8 ? DType::Int64 : DType::Int32; }

// The element types that planq has a name for, by NumPy's numbers (NPY_TYPES in its
// ndarraytypes.h), which are part of its binary interface.
constexpr auto kByNumber = [] {
  std::array<DType, 24> table{};
  table[0] = DType::Bool;
  table[1] = DType::Int8;
  table[2] = DType::UInt8;
  table[5] = integer_of(sizeof(int));
  table[7] = integer_of(sizeof(long));
  table[9] = integer_of(sizeof(long long));
  table[11] = DType::Float32;
  table[12] = DType::Float64;
  table[23] = DType::Float16;
  return table;
}();

DType dtype_of_array(const py::dtype& type) {
  const auto number = static_cast<std::size_t>(type.num());
  const bool native = type.byteorder() == '=' || type.byteorder() == '|';
  return native && number < kByNumber.size() ? kByNumber[number] : DType::Unset;
}

}  // namespace

bool read_numpy_array(PyObject* object, TensorView& view) {
  const auto array = py::reinterpret_borrow<py::array>(object);
  const DType dtype = dtype_of_array(array.dtype());
  if (dtype == DType::Unset || array.ndim() > kMaxRank) return false;
  const py::ssize_t bytes = storage_bytes(dtype);
  for (int axis = 0; axis < array.ndim(); ++axis) {
    if (array.strides()[axis] % bytes != 0) return false;
    view.shape[axis] = array.shape()[axis];
    view.strides[axis] = array.strides()[axis] / bytes;
  }
  view.data = const_cast<void*>(array.data());
  view.ndim = static_cast<int>(array.ndim());
  view.dtype = dtype;
  view.readonly = !array.writeable();
  return true;
}

}  // namespace planq::python
