#include "core/plan.h"

#include <cstdlib>
#include <utility>

namespace planq {

Status prepare(const Selection& selection, const Stream& stream, Plan& plan) {
  const Operator& op = *plan.descriptor.op;
  plan.kernel = selection.chosen;
  plan.workspace = plan.kernel->workspace(plan.descriptor, plan.device);
  plan.operand_count = static_cast<int>(op.operands.size());
  op.specify(plan.descriptor, std::span(plan.specs).first(op.operands.size()));
  const DeviceGuard guard(stream);
  if (!guard.status().ok()) return guard.status();
  return plan.kernel->prepare(plan.descriptor, plan.device, plan.state);
}

Status launch(const Plan& plan, const Operands& operands, Workspace workspace,
              const Stream& stream) {
  const DeviceGuard guard(stream);
  if (!guard.status().ok()) return guard.status();
  return plan.kernel->launch(plan.state, operands, workspace, stream);
}

bool extent_of(const OperandSpec& spec, const OperandView& view, std::uintptr_t& first,
               std::uintptr_t& last) {
  const std::int64_t size = storage_bytes(spec.dtype);
  std::int64_t below = 0, above = size;
  for (int axis = 0; axis < spec.shape.rank; ++axis) {
    const std::int64_t extent = spec.shape[axis];
    if (extent == 0) return false;
    const std::int64_t reach = (extent - 1) * view.strides[axis] * size;
    (reach < 0 ? below : above) += reach;
  }
  const auto base = reinterpret_cast<std::uintptr_t>(view.data);
  first = base + static_cast<std::uintptr_t>(below);
  last = base + static_cast<std::uintptr_t>(above);
  return true;
}

bool overlaps_itself(const OperandSpec& spec, const OperandView& view) {
  // Axes by growing stride; insertion, because there are at most eight.
  std::array<std::pair<std::int64_t, std::int64_t>, kMaxRank> axes;  // |stride|, extent
  int count = 0;
  for (int axis = 0; axis < spec.shape.rank; ++axis) {
    if (spec.shape[axis] == 0) return false;
    if (spec.shape[axis] == 1) continue;
    const std::int64_t stride = std::abs(view.strides[axis]);
    int place = count++;
    for (; place > 0 && axes[place - 1].first > stride; --place) axes[place] = axes[place - 1];
    axes[place] = {stride, spec.shape[axis]};
  }
  std::int64_t covered = 1;  // one past the farthest element that the smaller axes reach
  for (int i = 0; i < count; ++i) {
    if (axes[i].first < covered) return true;
    covered += (axes[i].second - 1) * axes[i].first;
  }
  return false;
}

}  // namespace planq
