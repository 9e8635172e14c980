#include "core/plan.h"

#include <algorithm>

namespace planq {
namespace {

void set_extents(Descriptor& descriptor, const DescriptorExtras& extras,
                 const std::array<std::int64_t, kMaxDims>& extents) {
  for (const DimUse& use : extras.uses)
    std::memcpy(descriptor.storage.data() + use.offset, &extents[use.dim], sizeof(std::int64_t));
}

// Whether selection would prefer a kernel at some extent below the largest.
bool takes_some(const Kernel& kernel, const Plan& plan) {
  Descriptor smaller = plan.descriptor;
  const DescriptorExtras& extras = *plan.descriptor.extras;
  for (std::int64_t power = 1;; power *= 2) {
    std::array<std::int64_t, kMaxDims> extents{};
    bool largest = true;
    for (std::size_t dim = 0; dim < extras.dims.size(); ++dim) {
      extents[dim] = std::min(power, extras.dims[dim].max);
      largest = largest && power >= extras.dims[dim].max;
    }
    set_extents(smaller, extras, extents);
    if (kernel.rejects(smaller, plan.device).accepted()) return true;
    if (largest || power > (std::int64_t{1} << 61)) return false;
  }
}

// Kernels that may run in the place of the chosen one: all of the same bits, which the preference
// leaves. A pin names one.
bool may_stand_in(const Kernel& kernel, const Plan& plan, std::size_t& workspace) {
  if (!plan.preference.sku.empty()) return false;
  if (plan.kernel->guarantee.determinism != Determinism::BitExact ||
      kernel.guarantee.determinism != Determinism::BitExact || !kernel.constraints.empty())
    return false;
  const Reason reason = kernel.rejects(plan.descriptor, plan.device);
  if (!reason.accepted() && reason.kind != ReasonKind::Shape) return false;
  if (!takes_some(kernel, plan)) return false;
  workspace = workspace_of(kernel, plan.descriptor, plan.device);
  return rejects_preference(kernel, plan.descriptor, plan.preference, workspace).accepted();
}

}  // namespace

bool find_kernels(Plan& plan) {
  const Candidate chosen = choose(plan.descriptor, plan.preference, plan.device);
  plan.kernel = chosen.kernel;
  if (!plan.kernel) return false;
  plan.dims = plan.descriptor.count_dims();
  const auto add = [&](const Kernel& kernel, std::size_t workspace) {
    PreparedKernel& prepared = plan.prepared.emplace_back();
    prepared.kernel = &kernel;
    prepared.needs_workspace = workspace > 0;
    plan.workspace = std::max(plan.workspace, workspace);
  };
  if (plan.dims == 0) {
    add(*plan.kernel, chosen.workspace);
    return true;
  }
  const auto kernels = kernels_for(plan.descriptor, plan.device);
  for (const Kernel* kernel : *kernels) {
    std::size_t workspace = chosen.workspace;
    if (kernel == plan.kernel || may_stand_in(*kernel, plan, workspace)) add(*kernel, workspace);
  }
  return true;
}

bool make_plan(const Stream& stream, Plan& plan, Status& status) {
  if (!find_kernels(plan)) return false;
  const Operator& op = *plan.descriptor.op;
  plan.specs.resize(op.operands.size());
  specify(plan.descriptor, plan.specs);
  plan.has_lists = std::any_of(plan.specs.begin(), plan.specs.end(), [](const OperandSpec& spec) {
    return spec.kind == OperandKind::List;
  });
  const DeviceGuard guard(stream);
  status = guard.status();
  for (PreparedKernel& prepared : plan.prepared)
    if (status.ok())
      status = prepared.kernel->prepare(plan.descriptor, plan.device, prepared.state);
  return true;
}

namespace {

// Bytes for exactly the extents of a descriptor.
std::size_t workspace_now(const PreparedKernel& prepared, const Descriptor& descriptor,
                          const Device& device) {
  const Kernel& kernel = *prepared.kernel;
  if (!prepared.needs_workspace) return 0;
  return kernel.prepared_workspace ? kernel.prepared_workspace(descriptor, prepared.state)
                                   : kernel.workspace(descriptor, device);
}

// The kernel that a plan of these very extents would have chosen.
const PreparedKernel& prepared_for(const Plan& plan, const Descriptor& descriptor) {
  if (plan.prepared.size() == 1) return plan.prepared.front();
  const PreparedKernel* chosen = &plan.prepared.front();
  for (const PreparedKernel& prepared : plan.prepared) {
    if (prepared.kernel->rejects(descriptor, plan.device).accepted()) return prepared;
    if (prepared.kernel == plan.kernel) chosen = &prepared;
  }
  return *chosen;
}

}  // namespace

Actual actual_of(const Plan& plan, const Extents& extents, Descriptor& storage) {
  if (plan.dims == 0) return {&plan.descriptor, &plan.prepared.front(), plan.workspace};
  storage.op = plan.descriptor.op;
  storage.storage = plan.descriptor.storage;
  set_extents(storage, *plan.descriptor.extras, extents.at);
  const PreparedKernel& prepared = prepared_for(plan, storage);
  return {&storage, &prepared, workspace_now(prepared, storage, plan.device)};
}

Status bind(const Plan& plan, const Actual& actual, Operands operands, Workspace workspace,
            const Stream& stream, Bound& bound) {
  const DeviceGuard guard(stream);
  if (!guard.status().ok()) return guard.status();
  return actual.prepared->kernel->bind(
      {*actual.descriptor, plan.device, actual.prepared->state, operands, workspace}, bound);
}

Status launch(const Bound& bound, const Stream& stream) {
  const DeviceGuard guard(stream);
  if (!guard.status().ok()) return guard.status();
  return bound.launch(stream);
}

}  // namespace planq
