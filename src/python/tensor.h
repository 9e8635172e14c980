// Tensor intake: what a Python object says about its memory, read without copying and without a
// reference to any array library.
#pragma once

#include <Python.h>

#include <string>

#include "core/descriptor.h"

namespace planq::python {

struct TensorView {
  void* data = nullptr;
  int ndim = 0;
  DType dtype = DType::Unset;  // Unset: a type that planq has no name for (see type_text)
  bool on_cuda = false;
  int device = 0;
  bool readonly = false;
  std::array<std::int64_t, kMaxRank> shape{};
  std::array<std::int64_t, kMaxRank> strides{};  // in elements
  char type_text[24] = "";
};

// Whether and how an object's memory could be read.
enum class Intake {
  Ok,
  NotATensor,   // no interface that planq knows
  TooManyAxes,  // more than kMaxRank
  Refused,      // the object's own interface raised; the Python error is set
  Fake,         // a tensor subclass whose memory is not where its base class says
};

Intake read_tensor(PyObject* object, TensorView& view);

// "(4096, 8192) bfloat16 on cuda:0, strides (8192, 1)"
std::string describe(const TensorView& view, bool with_strides);
std::string shape_text(const std::int64_t* dims, int rank);

}  // namespace planq::python
