// A selected and prepared kernel: everything that run needs, immutable after construction, so that
// threads may share it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/api.h"
#include "core/select.h"

namespace planq {

// A kernel that was prepared for a plan.
struct PreparedKernel {
  const Kernel* kernel = nullptr;
  bool is_prepared = false;      // not in a foreseen plan, which has no state
  bool needs_workspace = false;  // for some extents
  State state;
};

// How many terms a kernel's error bound covers for a descriptor; 0 where it has none.
inline std::int64_t terms_of(const Kernel& kernel, const Descriptor& descriptor) {
  const ErrorBound& bound = kernel.guarantee.error_bound.value;
  return bound.terms ? bound.terms(descriptor) : 0;
}

struct Plan {
  Descriptor descriptor;
  Preference preference;
  Device device;
  const Kernel* kernel = nullptr;  // the chosen one, whose SKU is the plan's
  std::size_t workspace = 0;       // enough for all extents
  std::vector<OperandSpec> specs;
  bool has_lists = false;
  int dims = 0;
  // What runs: the chosen kernel; with dims also the other bodies of its SKU that selection prefers
  // at smaller extents, in order of preference.
  std::vector<PreparedKernel> prepared;

  std::int64_t terms() const { return terms_of(*kernel, descriptor); }
};

// The kernels of a plan whose descriptor, preference and device are set, and the workspace that
// they ask for; nothing is prepared. False: nothing was chosen.
bool find_kernels(Plan& plan);
// The same, and what each operand has to be: all of a plan but what runs it. The device need not be
// present.
bool foresee_plan(Plan& plan) PLANQ_API(foresee_plan);
// The same, and prepares the kernels. False: nothing was chosen, and `status` is that of the
// device.
bool make_plan(const Stream& stream, Plan& plan, Status& status) PLANQ_API(make_plan);

// What one call has in the place of the plan's dims.
struct Actual {
  const Descriptor* descriptor;
  const PreparedKernel* prepared;
  std::size_t workspace;
};
// `storage` is where the descriptor goes that has the extents of the call; it is not used where the
// plan has no dims.
Actual actual_of(const Plan& plan, const Extents& extents, Descriptor& storage)
    PLANQ_API(actual_of);

// The maximum of each dim.
Extents largest_extents(const Plan& plan) PLANQ_API(largest_extents);

// The bodies of the plan's SKU in order of preference, for some extents of its dims: which of them
// runs, and why the others do not. `storage` as in actual_of(); the reasons refer to it.
std::vector<Candidate> bodies_of(const Plan& plan, const Extents& extents, Descriptor& storage)
    PLANQ_API(bodies_of);

// Everything but the launches, which it adds to the bound, with the plan's device current.
Status bind(const Plan& plan, const Actual& actual, Operands operands, Workspace workspace,
            const Stream& stream, Bound& bound) PLANQ_API(bind);
// A bound launch, with the stream's device current.
Status launch(const Bound& bound, const Stream& stream) PLANQ_API(launch);

}  // namespace planq
