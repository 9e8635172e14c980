#include "python/tensor.h"

#include <cstdio>
#include <cstring>
#include <string_view>
#include <unordered_map>

#include "python/dlpack_abi.h"

namespace planq::python {
namespace {

// Which interface a type is read through; found once per type.
enum class Route { None, Exchange, Fake, HostDlpack, Dlpack, Tuple };

struct TypeEntry {
  Route route = Route::None;
  const dlpack::ExchangeApi* api = nullptr;
};

struct Names {
  PyObject* dlpack = PyUnicode_InternFromString("__dlpack__");
  PyObject* dlpack_device = PyUnicode_InternFromString("__dlpack_device__");
  PyObject* exchange = PyUnicode_InternFromString("__dlpack_c_exchange_api__");
  PyObject* torch_dispatch = PyUnicode_InternFromString("__torch_dispatch__");
  PyObject* cuda_interface = PyUnicode_InternFromString("__cuda_array_interface__");
  PyObject* array_interface = PyUnicode_InternFromString("__array_interface__");
  PyObject* dtype = PyUnicode_InternFromString("dtype");
  PyObject* name = PyUnicode_InternFromString("name");
  PyObject* stream_kw = Py_BuildValue("(s)", "stream");
};
const Names& names() {
  static const Names* interned = new Names;
  return *interned;
}

// An owned reference that may be null.
class Ref {
 public:
  explicit Ref(PyObject* object) : object_(object) {}
  ~Ref() { Py_XDECREF(object_); }
  Ref(const Ref&) = delete;
  Ref& operator=(const Ref&) = delete;
  PyObject* get() const { return object_; }
  explicit operator bool() const { return object_ != nullptr; }

 private:
  PyObject* object_;
};

DType dtype_of(dlpack::DataType type) {
  if (type.lanes != 1) return DType::Unset;
  switch (type.code) {
    case dlpack::kInt:
      return type.bits == 8    ? DType::Int8
             : type.bits == 32 ? DType::Int32
             : type.bits == 64 ? DType::Int64
                               : DType::Unset;
    case dlpack::kUInt:
      return type.bits == 8 ? DType::UInt8 : DType::Unset;
    case dlpack::kFloat:
      return type.bits == 16   ? DType::Float16
             : type.bits == 32 ? DType::Float32
             : type.bits == 64 ? DType::Float64
                               : DType::Unset;
    case dlpack::kBfloat:
      return type.bits == 16 ? DType::BFloat16 : DType::Unset;
    case dlpack::kE4M3FN:
      return DType::Float8E4M3FN;
    case dlpack::kE5M2:
      return DType::Float8E5M2;
    default:
      return DType::Unset;
  }
}

void name_unknown(dlpack::DataType type, TensorView& view) {
  static constexpr const char* kinds[] = {"int",    "uint",    "float", "handle",
                                          "bfloat", "complex", "bool",  "float8_e3m4"};
  const char* kind = type.code < std::size(kinds) ? kinds[type.code] : "dlpack_code";
  std::snprintf(view.type_text, sizeof view.type_text, "%s%d", kind, type.bits);
}

void contiguous_strides(TensorView& view) {
  std::int64_t stride = 1;
  for (int axis = view.ndim - 1; axis >= 0; --axis) {
    view.strides[axis] = stride;
    stride *= view.shape[axis];
  }
}

Intake from_dlpack(const dlpack::Tensor& tensor, bool readonly, TensorView& view) {
  if (tensor.ndim > kMaxRank) return Intake::TooManyAxes;
  view.data = static_cast<char*>(tensor.data) + tensor.byte_offset;
  view.ndim = tensor.ndim;
  view.dtype = dtype_of(tensor.dtype);
  if (view.dtype == DType::Unset) name_unknown(tensor.dtype, view);
  view.on_cuda = tensor.device.type != dlpack::kCpu;
  // Memory kinds other than plain host and device memory get no device that could match.
  const bool plain = tensor.device.type == dlpack::kCpu || tensor.device.type == dlpack::kCuda ||
                     tensor.device.type == dlpack::kCudaManaged;
  view.device = plain ? tensor.device.index : -1;
  view.readonly = readonly;
  for (int axis = 0; axis < tensor.ndim; ++axis) view.shape[axis] = tensor.shape[axis];
  if (tensor.strides) {
    for (int axis = 0; axis < tensor.ndim; ++axis) view.strides[axis] = tensor.strides[axis];
  } else {
    contiguous_strides(view);
  }
  return Intake::Ok;
}

Intake read_capsule(PyObject* capsule, TensorView& view) {
  if (PyCapsule_IsValid(capsule, "dltensor_versioned")) {
    const auto* managed =
        static_cast<dlpack::ManagedVersioned*>(PyCapsule_GetPointer(capsule, "dltensor_versioned"));
    return from_dlpack(managed->tensor, managed->flags & 1u, view);
  }
  const auto* managed = static_cast<dlpack::Managed*>(PyCapsule_GetPointer(capsule, "dltensor"));
  if (!managed) return Intake::Refused;
  return from_dlpack(managed->tensor, false, view);
}

// A producer on a device is told not to synchronize (stream = -1): the caller owns the streams.
// A producer that is always on the host is not asked for its device.
PyObject* make_capsule(PyObject* object, bool always_host) {
  if (always_host) return PyObject_CallMethodNoArgs(object, names().dlpack);
  const Ref device(PyObject_CallMethodNoArgs(object, names().dlpack_device));
  if (!device) return nullptr;
  PyObject* type = PyTuple_Check(device.get()) ? PyTuple_GET_ITEM(device.get(), 0) : nullptr;
  const bool host = type && PyLong_AsLong(type) == dlpack::kCpu;
  if (PyErr_Occurred()) return nullptr;
  if (host) return PyObject_CallMethodNoArgs(object, names().dlpack);
  const Ref nowhere(PyLong_FromLong(-1));
  PyObject* arguments[] = {object, nowhere.get()};
  return PyObject_VectorcallMethod(names().dlpack, arguments, 1 | PY_VECTORCALL_ARGUMENTS_OFFSET,
                                   names().stream_kw);
}

DType dtype_named(std::string_view text) {
  for (std::size_t i = 1; i < kNames<DType>.size(); ++i) {
    const DType dtype = static_cast<DType>(i);
    if (kNames<DType>[i] == text && !is_four_bit(dtype)) return dtype;
  }
  return DType::Unset;
}

// The dtype of an array that describes itself by a dtype object or a type string.
DType interface_dtype(PyObject* object, PyObject* interface, TensorView& view) {
  PyObject* typestr = PyDict_GetItemString(interface, "typestr");
  const char* code = typestr && PyUnicode_Check(typestr) ? PyUnicode_AsUTF8(typestr) : nullptr;
  if (code && code[0] == '>') {  // the name of a dtype does not tell its byte order
    std::snprintf(view.type_text, sizeof view.type_text, "%s", code);
    return DType::Unset;
  }
  const Ref dtype(PyObject_GetAttr(object, names().dtype));
  const Ref name(dtype ? PyObject_GetAttr(dtype.get(), names().name) : nullptr);
  PyErr_Clear();
  const char* text = name && PyUnicode_Check(name.get()) ? PyUnicode_AsUTF8(name.get()) : nullptr;
  if (text) {
    std::snprintf(view.type_text, sizeof view.type_text, "%s", text);
    if (const DType found = dtype_named(text); found != DType::Unset) return found;
  }
  if (!code) return DType::Unset;
  if (!text) std::snprintf(view.type_text, sizeof view.type_text, "%s", code);
  static constexpr std::pair<std::string_view, DType> kCodes[] = {
      {"<f2", DType::Float16}, {"<f4", DType::Float32}, {"<f8", DType::Float64},
      {"|i1", DType::Int8},    {"|u1", DType::UInt8},   {"<i4", DType::Int32},
      {"<i8", DType::Int64}};
  for (const auto& [spelled, found] : kCodes)
    if (spelled == code) return found;
  return DType::Unset;
}

// Reads a tuple of integers; false sets a Python error.
bool read_dims(PyObject* tuple, std::array<std::int64_t, kMaxRank>& dims, int expected) {
  if (!PyTuple_Check(tuple) || PyTuple_GET_SIZE(tuple) != expected) {
    PyErr_SetString(PyExc_TypeError, "expected a tuple with one integer per axis");
    return false;
  }
  for (int axis = 0; axis < expected; ++axis)
    dims[axis] = PyLong_AsLongLong(PyTuple_GET_ITEM(tuple, axis));
  return !PyErr_Occurred();
}

// Strides of the array interfaces count bytes.
bool strides_from_bytes(TensorView& view) {
  const std::int64_t size = view.dtype == DType::Unset ? 1 : storage_bytes(view.dtype);
  for (int axis = 0; axis < view.ndim; ++axis) {
    if (view.strides[axis] % size != 0) {
      PyErr_SetString(PyExc_ValueError, "strides are no multiple of the element size");
      return false;
    }
    view.strides[axis] /= size;
  }
  return true;
}

Intake read_interface(PyObject* object, PyObject* attribute, bool cuda, TensorView& view) {
  const Ref interface(PyObject_GetAttr(object, attribute));
  if (!interface) return Intake::Refused;
  PyObject* data =
      PyDict_Check(interface.get()) ? PyDict_GetItemString(interface.get(), "data") : nullptr;
  PyObject* shape = data ? PyDict_GetItemString(interface.get(), "shape") : nullptr;
  if (!shape || !PyTuple_Check(shape) || !PyTuple_Check(data) || PyTuple_GET_SIZE(data) != 2)
    return Intake::NotATensor;
  if (PyTuple_GET_SIZE(shape) > kMaxRank) return Intake::TooManyAxes;
  view.ndim = static_cast<int>(PyTuple_GET_SIZE(shape));
  if (!read_dims(shape, view.shape, view.ndim)) return Intake::Refused;
  view.data = PyLong_AsVoidPtr(PyTuple_GET_ITEM(data, 0));
  view.readonly = PyObject_IsTrue(PyTuple_GET_ITEM(data, 1)) == 1;
  if (PyErr_Occurred()) return Intake::Refused;
  view.dtype = interface_dtype(object, interface.get(), view);
  view.on_cuda = cuda;
  view.device = 0;
  if (cuda) {
    // The interface names no device; the library's own attribute does.
    const Ref device(PyObject_GetAttrString(object, "device"));
    const Ref index(device ? PyObject_GetAttrString(device.get(), "id") : nullptr);
    PyErr_Clear();
    if (index && PyLong_Check(index.get()))
      view.device = static_cast<int>(PyLong_AsLong(index.get()));
  }
  PyObject* strides = PyDict_GetItemString(interface.get(), "strides");
  if (!strides || strides == Py_None) {
    contiguous_strides(view);
    return Intake::Ok;
  }
  return read_dims(strides, view.strides, view.ndim) && strides_from_bytes(view) ? Intake::Ok
                                                                                 : Intake::Refused;
}

// Objects with __dlpack__. What DLPack cannot say (a read-only array, an ml_dtypes element type)
// is in the array interface.
Intake read_dlpack(PyObject* object, bool always_host, TensorView& view) {
  const Ref capsule(make_capsule(object, always_host));
  if (capsule) return read_capsule(capsule.get(), view);
  if (!PyErr_ExceptionMatches(PyExc_BufferError) && !PyErr_ExceptionMatches(PyExc_TypeError))
    return Intake::Refused;
  PyErr_Clear();
  if (PyObject_HasAttr(object, names().cuda_interface))
    return read_interface(object, names().cuda_interface, true, view);
  return read_interface(object, names().array_interface, false, view);
}

bool read_device(PyObject* object, TensorView& view) {
  const char* text = PyUnicode_Check(object) ? PyUnicode_AsUTF8(object) : nullptr;
  if (text && std::strcmp(text, "host") == 0) return true;
  int index = 0, used = 0;
  if (text && std::sscanf(text, "cuda:%d%n", &index, &used) == 1 && text[used] == '\0') {
    view.on_cuda = true;
    view.device = index;
    return true;
  }
  PyErr_SetString(PyExc_ValueError, "the device of a tensor tuple is \"host\" or \"cuda:N\"");
  return false;
}

// (pointer, shape, strides or None, dtype, device), strides in elements.
Intake read_tuple(PyObject* tuple, TensorView& view) {
  if (PyTuple_GET_SIZE(tuple) != 5 || !PyTuple_Check(PyTuple_GET_ITEM(tuple, 1)))
    return Intake::NotATensor;
  PyObject* shape = PyTuple_GET_ITEM(tuple, 1);
  PyObject* strides = PyTuple_GET_ITEM(tuple, 2);
  if (PyTuple_GET_SIZE(shape) > kMaxRank) return Intake::TooManyAxes;
  view.data = PyLong_AsVoidPtr(PyTuple_GET_ITEM(tuple, 0));
  if (PyErr_Occurred()) return Intake::Refused;
  view.ndim = static_cast<int>(PyTuple_GET_SIZE(shape));
  if (!read_dims(shape, view.shape, view.ndim)) return Intake::Refused;
  const Ref dtype_text(PyObject_Str(PyTuple_GET_ITEM(tuple, 3)));
  const char* text = dtype_text ? PyUnicode_AsUTF8(dtype_text.get()) : nullptr;
  if (!text) return Intake::Refused;
  view.dtype = dtype_named(text);
  std::snprintf(view.type_text, sizeof view.type_text, "%s", text);
  if (!read_device(PyTuple_GET_ITEM(tuple, 4), view)) return Intake::Refused;
  if (strides == Py_None) {
    contiguous_strides(view);
    return Intake::Ok;
  }
  return read_dims(strides, view.strides, view.ndim) ? Intake::Ok : Intake::Refused;
}

// A subclass with its own __torch_dispatch__ (FakeTensor among them) inherits torch.Tensor's
// exchange table, which would read a pointer that is not its memory.
bool dispatches_itself(PyTypeObject* type) {
  PyObject* bases = type->tp_mro;
  if (!bases) return false;
  const Ref own(PyObject_GetAttr(reinterpret_cast<PyObject*>(type), names().torch_dispatch));
  if (!own) {
    PyErr_Clear();
    return false;
  }
  // From the root downwards, so that a subclass that is itself called Tensor is not its own base.
  for (Py_ssize_t i = PyTuple_GET_SIZE(bases) - 1; i >= 0; --i) {
    auto* base = reinterpret_cast<PyTypeObject*>(PyTuple_GET_ITEM(bases, i));
    if (std::strcmp(base->tp_name, "Tensor") != 0) continue;
    const Ref inherited(
        PyObject_GetAttr(reinterpret_cast<PyObject*>(base), names().torch_dispatch));
    PyErr_Clear();
    return inherited.get() != own.get();
  }
  return false;
}

bool has(PyTypeObject* type, PyObject* name) {
  return PyObject_HasAttr(reinterpret_cast<PyObject*>(type), name);
}

TypeEntry classify(PyTypeObject* type) {
  if (type == &PyTuple_Type) return {Route::Tuple, nullptr};
  if (has(type, names().exchange)) {
    if (dispatches_itself(type)) return {Route::Fake, nullptr};
    const Ref capsule(PyObject_GetAttr(reinterpret_cast<PyObject*>(type), names().exchange));
    const auto* api = capsule ? static_cast<const dlpack::ExchangeApi*>(
                                    PyCapsule_GetPointer(capsule.get(), "dlpack_exchange_api"))
                              : nullptr;
    PyErr_Clear();
    if (api && api->version.major == 1) return {Route::Exchange, api};
  }
  if (has(type, names().torch_dispatch) && dispatches_itself(type)) return {Route::Fake, nullptr};
  if (std::strcmp(type->tp_name, "numpy.ndarray") == 0) return {Route::HostDlpack, nullptr};
  if (has(type, names().dlpack) && has(type, names().dlpack_device))
    return {Route::Dlpack, nullptr};
  return {Route::None, nullptr};
}

// Types are kept alive so that an address is never a different type later.
const TypeEntry& entry_of(PyTypeObject* type) {
  static PyTypeObject* last_type = nullptr;
  static TypeEntry last_entry;
  if (type == last_type) return last_entry;
  static auto* cache = new std::unordered_map<PyTypeObject*, TypeEntry>;
  auto found = cache->find(type);
  if (found == cache->end()) {
    Py_INCREF(type);
    found = cache->emplace(type, classify(type)).first;
  }
  last_type = type;
  last_entry = found->second;
  return last_entry;
}

Intake read_exchange(PyObject* object, const dlpack::ExchangeApi* api, TensorView& view) {
  dlpack::Tensor tensor;
  if (api->tensor_from_object(object, &tensor) != 0) return Intake::Refused;
  return from_dlpack(tensor, false, view);
}

}  // namespace

Intake read_tensor(PyObject* object, TensorView& view) {
  const TypeEntry entry = entry_of(Py_TYPE(object));
  switch (entry.route) {
    case Route::Exchange:
      return read_exchange(object, entry.api, view);
    case Route::Fake:
      return Intake::Fake;
    case Route::HostDlpack:
      return read_dlpack(object, true, view);
    case Route::Dlpack:
      return read_dlpack(object, false, view);
    case Route::Tuple:
      return read_tuple(object, view);
    default:
      break;
  }
  // Interfaces that an instance, not its type, may offer.
  if (PyObject_HasAttr(object, names().cuda_interface))
    return read_interface(object, names().cuda_interface, true, view);
  if (PyObject_HasAttr(object, names().array_interface))
    return read_interface(object, names().array_interface, false, view);
  return Intake::NotATensor;
}

std::string shape_text(const std::int64_t* dims, int rank) {
  std::string text = "(";
  for (int axis = 0; axis < rank; ++axis) text += (axis ? ", " : "") + std::to_string(dims[axis]);
  return text + (rank == 1 ? ",)" : ")");
}

std::string describe(const TensorView& view, bool with_strides) {
  std::string text = shape_text(view.shape.data(), view.ndim) + " ";
  text +=
      view.dtype == DType::Unset ? std::string(view.type_text) : std::string(name_of(view.dtype));
  if (!view.on_cuda) text += " on host";
  if (view.on_cuda)
    text += view.device < 0 ? " on other memory" : " on cuda:" + std::to_string(view.device);
  if (with_strides) text += " with strides " + shape_text(view.strides.data(), view.ndim);
  return text;
}

}  // namespace planq::python
