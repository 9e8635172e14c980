// What torch knows about a tensor and DLPack's exchange table does not say: whether gradients are
// recorded for it, whether its memory holds the values with the other sign, and the storage that
// keeps this memory. Found through the tensor's own type, so torch is neither linked nor imported.
#pragma once

#include <cstddef>

#include "bindings/python/ref.h"

namespace planq::python {

class TorchTensor {
 public:
  // What is known of the tensor's type; null where it is none of torch's. Types are seen once.
  static const TorchTensor* of(PyObject* tensor);

  // Each answers 1 or 0, or -1 with the Python error set.
  int requires_grad(PyObject* tensor) const;
  int is_negative(PyObject* tensor) const;
  int records_gradients() const;  // torch.is_grad_enabled()

  // The storage of the tensor, which outlives `tensor.data = other` and `tensor.set_(other)` where
  // the tensor itself and its DLPack export go over to the other memory. Null: the error is set.
  Ref storage(PyObject* tensor) const;

 private:
  explicit TorchTensor(PyObject* tensor);

  const void* native(PyObject* tensor) const;

  PyObject* is_grad_enabled_;
  std::ptrdiff_t native_at_ = 0;  // of the address of torch's own object; 0: not known
};

}  // namespace planq::python
