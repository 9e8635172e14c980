// Sampled runs: what planq.recording hears of them, before and after.
#pragma once

#include <pybind11/pybind11.h>

#include <cstdint>

#include "bindings/python/ref.h"
#include "core/operands.h"
#include "core/plan.h"

namespace planq::python {

// Called as begin(plan, number, stream, operands) before one run in `every` of each plan. It
// returns None, or a function that is called after the run with whether it succeeded.
struct RecordHook {
  PyObject* begin = nullptr;
  std::uint64_t every = 1;
};
extern RecordHook record_hook;

// Counts the runs of a plan, while there is a hook. Whoever uses it has the GIL.
class RunCounter {
 public:
  // The number of this run if it is to be sampled; -1: it is not.
  std::int64_t next() {
    if (!record_hook.begin) return -1;
    const std::uint64_t number = count_++;
    return number % record_hook.every == 0 ? static_cast<std::int64_t>(number) : -1;
  }

 private:
  std::uint64_t count_ = 0;
};

// One tuple for each tensor and each scalar of a call: (name, member or -1, pointer, dtype,
// extents, strides in elements, bits). A scalar by value has bits and no pointer; all else has a
// pointer and no bits. Null: the Python error is set.
Ref described_operands(const Plan& plan, Operands operands);

// A run that is sampled, or not.
class Sampled {
 public:
  // False: the Python error is set, as it is where there are no operands.
  bool begin(PyObject* plan, std::int64_t number, const Stream& stream, PyObject* operands);
  // Takes what the run returned, and returns it; null: the Python error is set.
  PyObject* end(PyObject* done) const { return after_ ? ended(done) : done; }

 private:
  PyObject* ended(PyObject* done) const;

  Ref after_;
};

// Adds _core.set_record_hook.
void define_recording(pybind11::module_& module);

}  // namespace planq::python
