#include "bindings/python/torch_tensor.h"

#include <dlfcn.h>

#include <cstring>

namespace planq::python {
namespace {

// What an object has under a name, or null; never an error.
Ref found_in(PyObject* object, const char* name) {
  Ref found(object ? PyObject_GetAttrString(object, name) : nullptr);
  PyErr_Clear();
  return found;
}

// torch.is_grad_enabled. There is a tensor, so torch has been imported.
Ref grad_question() {
  const Ref name(PyUnicode_FromString("torch"));
  const Ref torch(name ? PyImport_GetModule(name.get()) : nullptr);
  return found_in(torch.get(), "is_grad_enabled");
}

int truth(const Ref& object) { return object ? PyObject_IsTrue(object.get()) : -1; }

// Two functions that torch's libraries export. Python's own ways to them, Tensor.is_neg() and
// Tensor.requires_grad, cost more than reading the tensor does, and the first lets go of the GIL:
// too much for every operand of every run. They remain the way where the functions are not found.
struct Functions {
  // bool at::native::is_neg(const at::Tensor&), where a tensor is the address of a TensorImpl
  bool (*is_neg)(const void* const& tensor) = nullptr;
  // bool c10::TensorImpl::requires_grad() const
  bool (*requires_grad)(const void* tensor) = nullptr;

  Functions() {
    find("libtorch_cpu.so", "_ZN2at6native6is_negERKNS_6TensorE", is_neg);
    find("libc10.so", "_ZNK3c1010TensorImpl13requires_gradEv", requires_grad);
  }
  explicit operator bool() const { return is_neg && requires_grad; }

 private:
  template <class F>
  static void find(const char* library, const char* name, F& function) {
    void* handle = dlopen(library, RTLD_NOW | RTLD_NOLOAD);
    if (!handle) return;
    function = reinterpret_cast<F>(dlsym(handle, name));
    dlclose(handle);  // torch keeps it loaded
  }
};
const Functions& functions() {
  static const Functions found;
  return found;
}

// Where in a tensor's Python object the address stands that its `_cdata` tells; 0: nowhere.
std::ptrdiff_t find_native(PyObject* tensor) {
  const Ref cdata = found_in(tensor, "_cdata");
  const void* const wanted = cdata ? PyLong_AsVoidPtr(cdata.get()) : nullptr;
  PyErr_Clear();
  const auto size = static_cast<std::ptrdiff_t>(Py_TYPE(tensor)->tp_basicsize);
  std::ptrdiff_t at = sizeof(PyObject);
  for (; wanted && at + static_cast<std::ptrdiff_t>(sizeof wanted) <= size; at += sizeof wanted)
    if (std::memcmp(reinterpret_cast<const char*>(tensor) + at, &wanted, sizeof wanted) == 0)
      return at;
  return 0;
}

}  // namespace

const TorchTensor* TorchTensor::of(PyObject* tensor) {
  auto* type = reinterpret_cast<PyObject*>(Py_TYPE(tensor));
  if (!found_in(type, "__torch_dispatch__") || !found_in(type, "untyped_storage")) return nullptr;
  return new TorchTensor(tensor);  // stays as long as its type, which tensor intake keeps
}

TorchTensor::TorchTensor(PyObject* tensor) : is_grad_enabled_(grad_question().release()) {
  if (functions()) native_at_ = find_native(tensor);
}

const void* TorchTensor::native(PyObject* tensor) const {
  const void* address = nullptr;
  if (native_at_ > 0)
    std::memcpy(&address, reinterpret_cast<const char*>(tensor) + native_at_, sizeof address);
  return address;
}

int TorchTensor::requires_grad(PyObject* tensor) const {
  if (const void* known = native(tensor)) return functions().requires_grad(known);
  return truth(Ref(PyObject_GetAttrString(tensor, "requires_grad")));
}

int TorchTensor::is_negative(PyObject* tensor) const {
  if (const void* known = native(tensor)) return functions().is_neg(known);
  return truth(Ref(PyObject_CallMethod(tensor, "is_neg", nullptr)));
}

int TorchTensor::records_gradients() const {
  return is_grad_enabled_ ? truth(Ref(PyObject_CallNoArgs(is_grad_enabled_))) : 1;
}

Ref TorchTensor::storage(PyObject* tensor) const {
  return Ref(PyObject_CallMethod(tensor, "untyped_storage", nullptr));
}

}  // namespace planq::python
