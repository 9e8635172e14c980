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

MemorySpan span_of(const OperandSpec& spec, const OperandView& view) {
  const std::int64_t size = storage_bytes(spec.dtype);
  std::int64_t below = 0, above = size;
  for (int axis = 0; axis < spec.shape.rank; ++axis) {
    const std::int64_t extent = spec.shape[axis];
    if (extent == 0) return {};
    const std::int64_t reach = (extent - 1) * view.strides[axis] * size;
    (reach < 0 ? below : above) += reach;
  }
  const auto base = reinterpret_cast<std::uintptr_t>(view.data);
  return {base + static_cast<std::uintptr_t>(below), base + static_cast<std::uintptr_t>(above)};
}

namespace {

// The slowest axis in bytes, and the bytes that the other axes span before and after the base.
struct Pitch {
  std::int64_t stride = 0, below = 0, above = 0;
};

Pitch pitch_of(const OperandSpec& spec, const OperandView& view) {
  const std::int64_t size = storage_bytes(spec.dtype);
  Pitch pitch{0, 0, size};
  int slowest = -1;
  for (int axis = 0; axis < spec.shape.rank; ++axis) {
    if (spec.shape[axis] <= 1) continue;
    const std::int64_t stride = std::abs(view.strides[axis]) * size;
    if (stride > pitch.stride) {
      pitch.stride = stride;
      slowest = axis;
    }
  }
  for (int axis = 0; axis < spec.shape.rank; ++axis) {
    if (axis == slowest) continue;
    const std::int64_t reach = (spec.shape[axis] - 1) * view.strides[axis] * size;
    (reach < 0 ? pitch.below : pitch.above) += reach;
  }
  return pitch;
}

// Whether the elements follow one another without a gap, as they do most of the time.
bool is_dense(const OperandSpec& spec, const OperandView& view) {
  std::int64_t dense = 1;
  for (int axis = spec.shape.rank - 1; axis >= 0; --axis) {
    if (spec.shape[axis] != 1 && view.strides[axis] != dense) return false;
    dense *= spec.shape[axis];
  }
  return true;
}

}  // namespace

bool interleaved(const OperandSpec& spec, const OperandView& view, const OperandSpec& other_spec,
                 const OperandView& other) {
  const Pitch a = pitch_of(spec, view), b = pitch_of(other_spec, other);
  if (a.stride == 0 || a.stride != b.stride) return false;
  // Both repeat every `stride` bytes; the first of b's bytes has to follow a's last, and b's last
  // has to come before a begins again.
  const auto start =
      static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(view.data)) + a.below;
  const auto other_start =
      static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(other.data)) + b.below;
  const std::int64_t gap = ((other_start - start) % a.stride + a.stride) % a.stride;
  return gap >= a.above - a.below && gap + b.above - b.below <= a.stride;
}

bool is_same(const OperandSpec& spec, const OperandView& view, const OperandView& other) {
  bool same = view.data == other.data;
  for (int axis = 0; same && axis < spec.shape.rank; ++axis)
    same = spec.shape[axis] == 1 || view.strides[axis] == other.strides[axis];
  return same;
}

bool overlaps_itself(const OperandSpec& spec, const OperandView& view) {
  if (is_dense(spec, view)) return false;
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
