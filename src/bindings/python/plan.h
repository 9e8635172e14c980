// Plans as Python sees them: operand checks, run, can_implement, bind.
#pragma once

#include <pybind11/pybind11.h>

#include <exception>
#include <vector>

#include "bindings/python/given.h"
#include "bindings/python/record.h"
#include "bindings/python/ref.h"
#include "core/plan.h"
#include "core/select.h"

namespace planq::python {

// No kernel accepts the descriptor under the preference; planq/plan.py turns it into NoKernelError
// with the selection table.
struct NoKernel : std::exception {
  const char* what() const noexcept override { return "no kernel was chosen"; }
};

// What a bound launch holds beside the launch.
struct Snapshot {
  pybind11::list kept;
  PyObject* gradients = nullptr;  // in `kept`
  Ref described;                  // null: there is no record hook
};

// The native half of planq.Plan.
class PlanBase {
 public:
  PlanBase(const Descriptor& descriptor, const Preference& preference, pybind11::handle stream,
           pybind11::object arguments_type);

  const Plan& plan() const { return plan_; }
  PyObject* arguments_type() const { return arguments_type_.ptr(); }
  // Whether a launch is over before another thread could want the GIL: on CUDA it only enqueues.
  bool keeps_gil() const { return keeps_gil_; }
  // What a call's operands are read into, until the lease ends.
  GivenLease lease() const { return {pool_, plan_}; }
  RunCounter& runs() const { return runs_; }
  // One operand of an instance of arguments_type(); null: the Python error is set.
  Ref operand(PyObject* arguments, int index) const;
  pybind11::object check(pybind11::handle arguments) const;
  pybind11::object bind(pybind11::handle self, pybind11::handle workspace,
                        pybind11::handle arguments) const;
  std::size_t workspace_size(const pybind11::dict& extents) const;
  pybind11::list bodies(const pybind11::dict& extents) const;

 private:
  Extents read_extents(const pybind11::dict& extents) const;
  Bound bind_operands(pybind11::handle workspace, pybind11::handle arguments,
                      Snapshot& snapshot) const;

  Plan plan_;
  mutable GivenPool pool_;
  mutable RunCounter runs_;
  pybind11::object arguments_type_;
  std::vector<pybind11::object> slots_;  // descriptors of its attributes
  bool keeps_gil_ = false;
};

// What plan.run does, with a stream of the plan's device and the operands in an array, in the order
// of the args. None, or null: the Python error is set.
PyObject* run_operands(PyObject* plan, const PlanBase& base, const Stream& stream,
                       PyObject* workspace, PyObject* const* operands);

// Adds _core.PlanBase and _core.Launch.
void define_plan(pybind11::module_& module);

}  // namespace planq::python
