// Tensor intake: what a Python object says about its memory, read without copying and without a
// reference to any array library.
#pragma once

#include <Python.h>

#include <string>

#include "bindings/python/ref.h"
#include "core/operands.h"

namespace planq::python {

// Whether and how an object's memory could be read.
enum class Intake {
  Ok,
  NotATensor,    // no interface that planq knows
  TooManyAxes,   // more than kMaxRank
  Refused,       // the object's own interface raised; the Python error is set
  Fake,          // a tensor subclass whose memory is not where its base class says
  Masked,        // a masked array, whose mask would be lost
  Negative,      // a torch tensor whose memory holds the values with the other sign
  RequiresGrad,  // a torch tensor whose gradient would be lost
};

// What has to be known of an object before its memory is read, and what reading may do.
struct Examined {
  Intake intake = Intake::Ok;
  bool requires_grad = false;  // fine while no gradients are recorded
  bool borrows = false;        // read_tensor(Keep::Call) would hold nothing
};
Examined examine(PyObject* object);

// How long the memory has to stay where it was read.
enum class Keep {
  Call,    // as long as the caller keeps the GIL and lets no Python code run
  Export,  // until `exported` is released, whatever becomes of the object
};

// Reads an object that was examined. `exported` receives what keeps the memory beside the object
// itself: a DLPack capsule, a buffer, a torch storage or the dictionary of an interface.
Intake read_tensor(PyObject* object, Keep keep, TensorView& view, Ref& exported);

// torch.is_grad_enabled() for a tensor that requires gradients; -1: the Python error is set.
int records_gradients(PyObject* object);

// Whether an object is a number by its `__index__`, and no tensor.
bool is_index(PyObject* object);
// Whether an object is Python's or NumPy's truth value.
bool is_flag(PyObject* object);
// Whether an object is a real number, and no tensor.
bool is_real(PyObject* object);

}  // namespace planq::python
