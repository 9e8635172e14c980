#include "bindings/python/tensor.h"

#include <cstdio>
#include <cstring>
#include <string_view>
#include <unordered_map>

#include "bindings/dlpack.h"
#include "bindings/python/numpy_array.h"
#include "bindings/python/torch_tensor.h"

namespace planq::python {

using dlpack::contiguous_strides;
using dlpack::dtype_of;
using dlpack::memory_of;

namespace {

// Which interface a type is read through; found once per type.
enum class Route { None, Exchange, Fake, Masked, NumPy, Dlpack, Tuple };

struct TypeEntry {
  Route route = Route::None;
  const dlpack::ExchangeApi* api = nullptr;
  const TorchTensor* torch = nullptr;  // null: no tensor of torch's
  bool number = false;                 // a NumPy scalar, whose interface describes a copy
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
  PyObject* mask = PyUnicode_InternFromString("mask");
  PyObject* version_kw = Py_BuildValue("(s)", "max_version");
  PyObject* stream_kw = Py_BuildValue("(ss)", "stream", "max_version");
  PyObject* version = Py_BuildValue("(ii)", 1, 1);
};
const Names& names() {
  static const Names* interned = new Names;
  return *interned;
}

Intake from_dlpack(const dlpack::Tensor& tensor, std::uint64_t flags, TensorView& view) {
  if (tensor.ndim > kMaxRank) return Intake::TooManyAxes;
  dlpack::read(tensor, view);
  view.readonly = flags & dlpack::kReadOnly;
  view.copied = flags & dlpack::kIsCopied;
  return Intake::Ok;
}

Intake read_capsule(PyObject* capsule, TensorView& view) {
  if (PyCapsule_IsValid(capsule, "dltensor_versioned")) {
    const auto* managed =
        static_cast<dlpack::ManagedVersioned*>(PyCapsule_GetPointer(capsule, "dltensor_versioned"));
    if (managed->version.major == 1) return from_dlpack(managed->tensor, managed->flags, view);
    PyErr_SetString(PyExc_BufferError, "its DLPack export is of another major version than 1");
    return Intake::Refused;
  }
  const auto* managed = static_cast<dlpack::Managed*>(PyCapsule_GetPointer(capsule, "dltensor"));
  if (!managed) return Intake::Refused;
  return from_dlpack(managed->tensor, 0, view);
}

// Whether the object's memory is on the host: 1 or 0, or -1 with the Python error set.
int is_on_host(PyObject* object) {
  const Ref device(PyObject_CallMethodNoArgs(object, names().dlpack_device));
  if (!device) return -1;
  PyObject* type = PyTuple_Check(device.get()) ? PyTuple_GET_ITEM(device.get(), 0) : nullptr;
  const bool host = type && PyLong_AsLong(type) == dlpack::kCpu;
  return PyErr_Occurred() ? -1 : host;
}

// The object's export in the form of DLPack 1, or in the older one, which knows no flags. A
// producer on a device is told not to synchronize (stream = -1): the caller owns the streams.
Ref call_dlpack(PyObject* object) {
  const int host = is_on_host(object);
  if (host < 0) return Ref();
  const Ref nowhere(PyLong_FromLong(-1));
  PyObject* on_device[] = {object, nowhere.get(), names().version};
  PyObject* on_host[] = {object, names().version};
  PyObject* const* arguments = host ? on_host : on_device;
  PyObject* keywords = host ? names().version_kw : names().stream_kw;
  Ref capsule(PyObject_VectorcallMethod(names().dlpack, arguments, 1, keywords));
  if (capsule || !PyErr_ExceptionMatches(PyExc_TypeError)) return capsule;
  PyErr_Clear();
  if (host) return Ref(PyObject_CallMethodNoArgs(object, names().dlpack));
  const Ref stream(Py_BuildValue("(s)", "stream"));
  return Ref(PyObject_VectorcallMethod(names().dlpack, on_device, 1, stream.get()));
}

DType dtype_named(std::string_view text) {
  for (std::size_t i = 1; i < kFormats.size(); ++i)
    if (kFormats[i].name == text && kFormats[i].per_byte == 1) return static_cast<DType>(i);
  return DType::Unset;
}

// NumPy's letters for signed and unsigned integers, IEEE numbers and truth values.
DType dtype_of_letter(char letter, std::size_t bytes) {
  constexpr NumberKind kinds[] = {NumberKind::Integer, NumberKind::Unsigned, NumberKind::Ieee,
                                  NumberKind::Bool};
  const std::size_t kind = std::string_view("iufb").find(letter);
  return kind < 4 ? dtype_of(static_cast<std::uint8_t>(kinds[kind]), 8 * bytes) : DType::Unset;
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
  if (!drop_exception()) return DType::Unset;
  const char* text = name && PyUnicode_Check(name.get()) ? PyUnicode_AsUTF8(name.get()) : nullptr;
  if (text) {
    std::snprintf(view.type_text, sizeof view.type_text, "%s", text);
    if (const DType found = dtype_named(text); found != DType::Unset) return found;
  }
  if (!code) return DType::Unset;
  if (!text) std::snprintf(view.type_text, sizeof view.type_text, "%s", code);
  // Such as "<f4": its last letter is the number of bytes. Big-endian types were answered above.
  const bool simple = code[0] != '\0' && code[1] != '\0' && code[2] != '\0' && code[3] == '\0';
  return simple ? dtype_of_letter(code[1], static_cast<std::size_t>(code[2] - '0')) : DType::Unset;
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

// The device of a CUDA array: its interface names none, the library's own attribute does.
int interface_device(PyObject* object) {
  const Ref device(PyObject_GetAttrString(object, "device"));
  const Ref index(device ? PyObject_GetAttrString(device.get(), "id") : nullptr);
  return index && PyLong_Check(index.get()) ? static_cast<int>(PyLong_AsLong(index.get())) : 0;
}

Intake read_dictionary(PyObject* object, PyObject* interface, bool cuda, TensorView& view) {
  PyObject* data = PyDict_Check(interface) ? PyDict_GetItemString(interface, "data") : nullptr;
  PyObject* shape = data ? PyDict_GetItemString(interface, "shape") : nullptr;
  if (!shape || !PyTuple_Check(shape) || !PyTuple_Check(data) || PyTuple_GET_SIZE(data) != 2)
    return Intake::NotATensor;
  if (PyTuple_GET_SIZE(shape) > kMaxRank) return Intake::TooManyAxes;
  if (PyObject* mask = PyDict_GetItemString(interface, "mask"); mask && mask != Py_None)
    return Intake::Masked;
  view.ndim = static_cast<int>(PyTuple_GET_SIZE(shape));
  if (!read_dims(shape, view.shape, view.ndim)) return Intake::Refused;
  view.data = PyLong_AsVoidPtr(PyTuple_GET_ITEM(data, 0));
  view.readonly = PyObject_IsTrue(PyTuple_GET_ITEM(data, 1)) == 1;
  if (PyErr_Occurred()) return Intake::Refused;
  view.dtype = interface_dtype(object, interface, view);
  view.memory = cuda ? Memory::Cuda : Memory::Host;
  view.device = cuda && !PyErr_Occurred() ? interface_device(object) : 0;
  if (!drop_exception()) return Intake::Refused;
  PyObject* strides = PyDict_GetItemString(interface, "strides");
  if (!strides || strides == Py_None) {
    contiguous_strides(view);
    return Intake::Ok;
  }
  return read_dims(strides, view.strides, view.ndim) && strides_from_bytes(view) ? Intake::Ok
                                                                                 : Intake::Refused;
}

// The element type of a buffer, by its format as the struct module spells it.
DType buffer_dtype(const Py_buffer& buffer, TensorView& view) {
  const char* format = buffer.format ? buffer.format : "B";
  std::snprintf(view.type_text, sizeof view.type_text, "format '%.10s'", format);
  if (*format == '@' || *format == '=' || *format == '<') ++format;
  if (format[0] == '\0' || format[1] != '\0') return DType::Unset;
  const std::string_view letters = "efdbBilq?", kinds = "fffiuiiib";
  const std::size_t letter = letters.find(*format);
  if (letter == letters.npos || buffer.itemsize < 1) return DType::Unset;
  return dtype_of_letter(kinds[letter], static_cast<std::size_t>(buffer.itemsize));
}

Intake read_buffer(const Py_buffer& buffer, TensorView& view) {
  if (buffer.ndim > kMaxRank) return Intake::TooManyAxes;
  if (buffer.suboffsets) {
    PyErr_SetString(PyExc_BufferError, "its buffer is a table of pointers");
    return Intake::Refused;
  }
  view.data = buffer.buf;
  view.ndim = buffer.ndim;
  view.readonly = buffer.readonly;
  view.dtype = buffer_dtype(buffer, view);
  for (int axis = 0; axis < buffer.ndim; ++axis) {
    view.shape[axis] = buffer.shape[axis];
    view.strides[axis] = buffer.strides[axis];
  }
  return strides_from_bytes(view) ? Intake::Ok : Intake::Refused;
}

// An attribute that need not be there. False: reading it failed, and the Python error is set.
bool optional_attribute(PyObject* object, PyObject* name, Ref& found) {
  found = Ref(PyObject_GetAttr(object, name));
  if (found) return true;
  if (!PyErr_ExceptionMatches(PyExc_AttributeError)) return false;
  PyErr_Clear();
  return true;
}

// Interfaces that an instance, not its type, may offer. A buffer that cannot say what its elements
// are, as that of an ml_dtypes array, leaves the word to the array interface.
Intake read_interfaces(PyObject* object, bool number, TensorView& view, Ref& exported) {
  if (!optional_attribute(object, names().cuda_interface, exported)) return Intake::Refused;
  if (exported) return read_dictionary(object, exported.get(), true, view);
  if (PyObject_CheckBuffer(object)) {
    exported = Ref(PyMemoryView_FromObject(object));
    if (exported) return read_buffer(*PyMemoryView_GET_BUFFER(exported.get()), view);
    if (!drop_exception()) return Intake::Refused;
  }
  if (!optional_attribute(object, names().array_interface, exported)) return Intake::Refused;
  if (!exported) return Intake::NotATensor;
  const Intake intake = read_dictionary(object, exported.get(), false, view);
  view.readonly = view.readonly || number;
  return intake;
}

// Objects with __dlpack__. What DLPack cannot say (an ml_dtypes element type; before DLPack 1, that
// an array is read-only) is in their other interfaces.
Intake read_dlpack(PyObject* object, const TypeEntry& entry, TensorView& view, Ref& exported) {
  const bool numpy = entry.route == Route::NumPy;
  exported = numpy ? Ref(PyObject_CallMethodNoArgs(object, names().dlpack)) : call_dlpack(object);
  if (exported) return read_capsule(exported.get(), view);
  if (!PyErr_ExceptionMatches(PyExc_BufferError) && !PyErr_ExceptionMatches(PyExc_TypeError))
    return Intake::Refused;
  PyErr_Clear();
  return read_interfaces(object, entry.number, view, exported);
}

bool read_device(PyObject* object, TensorView& view) {
  const char* text = PyUnicode_Check(object) ? PyUnicode_AsUTF8(object) : nullptr;
  if (text && std::strcmp(text, "host") == 0) return true;
  int index = 0, used = 0;
  if (text && std::sscanf(text, "cuda:%d%n", &index, &used) == 1 && text[used] == '\0') {
    view.memory = Memory::Cuda;
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

// Whether a type or one of its bases has this name.
bool derives_from(PyTypeObject* type, std::string_view name) {
  for (Py_ssize_t i = 0; type->tp_mro && i < PyTuple_GET_SIZE(type->tp_mro); ++i)
    if (reinterpret_cast<PyTypeObject*>(PyTuple_GET_ITEM(type->tp_mro, i))->tp_name == name)
      return true;
  return false;
}

// numpy.ma.MaskedArray, and what others derive from an array to the same end.
bool is_masked(PyTypeObject* type) {
  return has(type, names().mask) && derives_from(type, "numpy.ndarray");
}

TypeEntry classify(PyObject* object) {
  PyTypeObject* type = Py_TYPE(object);
  if (type == &PyTuple_Type) return {Route::Tuple};
  TypeEntry entry;
  entry.number = derives_from(type, "numpy.generic");
  if (has(type, names().torch_dispatch) && dispatches_itself(type)) return {Route::Fake};
  if (is_masked(type)) return {Route::Masked};
  entry.torch = TorchTensor::of(object);
  if (has(type, names().exchange)) {
    const Ref capsule(PyObject_GetAttr(reinterpret_cast<PyObject*>(type), names().exchange));
    const auto* api = capsule ? static_cast<const dlpack::ExchangeApi*>(
                                    PyCapsule_GetPointer(capsule.get(), "dlpack_exchange_api"))
                              : nullptr;
    PyErr_Clear();
    if (api && api->version.major == 1 && api->tensor_from_object) {
      entry.route = Route::Exchange;
      entry.api = api;
      return entry;
    }
  }
  if (std::strcmp(type->tp_name, "numpy.ndarray") == 0)
    entry.route = Route::NumPy;
  else if (has(type, names().dlpack) && has(type, names().dlpack_device))
    entry.route = Route::Dlpack;
  return entry;
}

// Types are kept alive so that an address is never a different type later.
const TypeEntry& entry_of(PyObject* object) {
  PyTypeObject* type = Py_TYPE(object);
  static PyTypeObject* last_type = nullptr;
  static TypeEntry last_entry;
  if (type == last_type) return last_entry;
  static auto* cache = new std::unordered_map<PyTypeObject*, TypeEntry>;
  auto found = cache->find(type);
  if (found == cache->end()) {
    Py_INCREF(type);
    found = cache->emplace(type, classify(object)).first;
  }
  last_type = type;
  last_entry = found->second;
  return last_entry;
}

void delete_managed(PyObject* capsule) {
  auto* managed = static_cast<dlpack::ManagedVersioned*>(PyCapsule_GetPointer(capsule, nullptr));
  if (managed && managed->deleter) managed->deleter(managed);
}

// What the exchange table exports, as the object that `__dlpack__` would return.
Ref managed_capsule(PyObject* object, const dlpack::ExchangeApi* api) {
  dlpack::ManagedVersioned* managed = nullptr;
  if (api->managed_from_object(object, &managed) != 0) return Ref();
  Ref capsule(PyCapsule_New(managed, nullptr, delete_managed));
  if (!capsule && managed->deleter) managed->deleter(managed);
  return capsule;
}

Intake read_exchange(PyObject* object, const TypeEntry& entry, Keep keep, TensorView& view,
                     Ref& exported) {
  if (keep == Keep::Export) {
    exported = entry.torch ? entry.torch->storage(object) : managed_capsule(object, entry.api);
    if (!exported) return Intake::Refused;
  }
  if (keep == Keep::Export && !entry.torch) {
    const auto* managed =
        static_cast<dlpack::ManagedVersioned*>(PyCapsule_GetPointer(exported.get(), nullptr));
    return from_dlpack(managed->tensor, managed->flags, view);
  }
  dlpack::Tensor tensor;
  if (entry.api->tensor_from_object(object, &tensor) != 0) return Intake::Refused;
  return from_dlpack(tensor, 0, view);
}

// A torch without the exchange table: its capsule follows the tensor to other memory.
Intake add_storage(PyObject* object, const TorchTensor& torch, Ref& exported) {
  const Ref storage = torch.storage(object);
  exported = Ref(storage ? PyTuple_Pack(2, exported.get(), storage.get()) : nullptr);
  return exported ? Intake::Ok : Intake::Refused;
}

}  // namespace

Examined examine(PyObject* object) {
  const TypeEntry entry = entry_of(object);
  Examined found;
  if (entry.route == Route::Fake) found.intake = Intake::Fake;
  if (entry.route == Route::Masked) found.intake = Intake::Masked;
  found.borrows = entry.route == Route::Exchange;
  if (!entry.torch || found.intake != Intake::Ok) return found;
  const TorchTensor& torch = *entry.torch;
  const int negative = torch.is_negative(object);
  const int graded = negative < 0 ? -1 : torch.requires_grad(object);
  found.requires_grad = graded == 1;
  const int recorded = found.requires_grad ? torch.records_gradients() : 0;
  if (negative < 0 || graded < 0 || recorded < 0)
    found.intake = Intake::Refused;
  else if (negative == 1)
    found.intake = Intake::Negative;
  else if (recorded == 1)
    found.intake = Intake::RequiresGrad;
  return found;
}

int records_gradients(PyObject* object) {
  const TypeEntry entry = entry_of(object);
  return entry.torch ? entry.torch->records_gradients() : 0;
}

bool is_real(PyObject* object) {
  return PyFloat_Check(object) || (PyNumber_Check(object) && entry_of(object).number) ||
         is_index(object);
}

bool is_flag(PyObject* object) {
  if (PyBool_Check(object)) return true;
  const std::string_view type = Py_TYPE(object)->tp_name;  // NumPy 2's, and NumPy 1's
  return type == "numpy.bool" || type == "numpy.bool_";
}

bool is_index(PyObject* object) {
  return PyLong_Check(object) || (PyIndex_Check(object) && entry_of(object).route == Route::None);
}

Intake read_tensor(PyObject* object, Keep keep, TensorView& view, Ref& exported) {
  const TypeEntry entry = entry_of(object);
  switch (entry.route) {
    case Route::Exchange:
      return read_exchange(object, entry, keep, view, exported);
    case Route::Fake:
      return Intake::Fake;
    case Route::Masked:
      return Intake::Masked;
    case Route::Tuple:
      return read_tuple(object, view);
    case Route::NumPy:
      if (!read_numpy_array(object, view)) return read_dlpack(object, entry, view, exported);
      exported = Ref(Py_NewRef(object));
      return Intake::Ok;
    case Route::Dlpack: {
      const Intake intake = read_dlpack(object, entry, view, exported);
      const bool moves = intake == Intake::Ok && entry.torch;
      return moves ? add_storage(object, *entry.torch, exported) : intake;
    }
    default:
      return read_interfaces(object, entry.number, view, exported);
  }
}

}  // namespace planq::python
