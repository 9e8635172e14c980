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

// Why another body of the chosen kernel's SKU, on this device, never runs in its place at smaller
// extents.
Reason rejects_standing_in(const Kernel& kernel, const Plan& plan) {
  constexpr ReasonKind kKind = ReasonKind::Preference;
  const Preference& preference = plan.preference;
  if (!preference.body.empty())
    return Reason::refuse(kKind, "the preference pins the body ",
                          std::string_view(preference.body));
  if (!kernel.constraints.empty())
    return Reason::refuse(ReasonKind::Feature,
                          "asks more of operands than their shapes, which only a call shows");
  const auto& limit = preference.max_workspace_bytes;
  if (const std::size_t bytes = workspace_of(kernel, plan.descriptor, plan.device);
      limit && bytes > static_cast<std::size_t>(*limit))
    return Reason::refuse(kKind, "needs up to ", bytes,
                          " bytes of workspace, the preference allows ", *limit);
  const Reason reason = kernel.rejects(plan.descriptor, plan.device);
  const bool may = reason.accepted() || reason.kind == ReasonKind::Shape;
  return may && takes_some(kernel, plan) ? Reason::accept() : reason;
}

bool is_same_sku(const Kernel& a, const Kernel& b) { return a.sku.view() == b.sku.view(); }

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
    if (kernel == plan.kernel)
      add(*kernel, chosen.workspace);
    else if (is_same_sku(*kernel, *plan.kernel) && rejects_standing_in(*kernel, plan).accepted())
      add(*kernel, workspace_of(*kernel, plan.descriptor, plan.device));
  }
  return true;
}

bool foresee_plan(Plan& plan) {
  if (!find_kernels(plan)) return false;
  const Operator& op = *plan.descriptor.op;
  plan.specs.resize(op.operands.size());
  specify(plan.descriptor, plan.specs);
  plan.has_lists = std::any_of(plan.specs.begin(), plan.specs.end(), [](const OperandSpec& spec) {
    return spec.kind == OperandKind::List;
  });
  return true;
}

bool make_plan(const Stream& stream, Plan& plan, Status& status) {
  if (!foresee_plan(plan)) return false;
  const DeviceGuard guard(stream);
  status = guard.status();
  for (PreparedKernel& prepared : plan.prepared) {
    if (status.ok())
      status = prepared.kernel->prepare(plan.descriptor, plan.device, prepared.state);
    prepared.is_prepared = status.ok();
  }
  return true;
}

namespace {

// Bytes for exactly the extents of a descriptor.
std::size_t workspace_now(const PreparedKernel& prepared, const Descriptor& descriptor,
                          const Device& device) {
  const Kernel& kernel = *prepared.kernel;
  if (!prepared.needs_workspace) return 0;
  return kernel.prepared_workspace && prepared.is_prepared
             ? kernel.prepared_workspace(descriptor, prepared.state)
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

Extents largest_extents(const Plan& plan) {
  Extents extents;
  for (int dim = 0; dim < plan.dims; ++dim) {
    const auto at = static_cast<std::size_t>(dim);
    extents.at[at] = plan.descriptor.extras->dims[at].max;
  }
  return extents;
}

std::vector<Candidate> bodies_of(const Plan& plan, const Extents& extents, Descriptor& storage) {
  const Actual actual = actual_of(plan, extents, storage);
  std::vector<Candidate> bodies;
  for (const Kernel* kernel : ordered_kernels(*plan.descriptor.op)) {
    if (!is_same_sku(*kernel, *plan.kernel)) continue;
    Candidate& body =
        bodies.emplace_back(examine(*kernel, *actual.descriptor, plan.preference, plan.device));
    body.chosen = kernel == actual.prepared->kernel;
    if (plan.dims > 0 && kernel != plan.kernel && body.reason.accepted())
      body.reason = rejects_standing_in(*kernel, plan);
  }
  return bodies;
}

Status bind(const Plan& plan, const Actual& actual, Operands operands, Workspace workspace,
            const Stream& stream, Bound& bound) {
  const DeviceGuard guard(stream);
  if (!guard.status().ok()) return guard.status();
  bound.name_body(actual.prepared->kernel->body);
  return actual.prepared->kernel->bind(
      {*actual.descriptor, plan.device, actual.prepared->state, operands, workspace}, bound);
}

Status launch(const Bound& bound, const Stream& stream) {
  const DeviceGuard guard(stream);
  if (!guard.status().ok()) return guard.status();
  return bound.launch(stream);
}

}  // namespace planq
