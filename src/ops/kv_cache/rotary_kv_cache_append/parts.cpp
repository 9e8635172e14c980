// What the kernels of both backends that are made of whole operators do: they bind one after the
// other to operands of the call, which go by the same names.

#include <algorithm>
#include <array>

#include "ops/kv_cache/rotary_kv_cache_append/desc.h"

namespace planq::rotary_kv_cache_append {

namespace {

// The operands of the part that is number `place`. Its count is one of the two.
std::array<OperandView, std::size(kOperands)> operands_of(const Operator& op, const Call& call,
                                                          std::size_t place) {
  std::array<OperandView, std::size(kOperands)> views{};
  for (std::size_t i = 0; i < op.operands.size(); ++i)
    for (std::size_t own = 0; own < std::size(kOperands); ++own)
      if (op.operands[i].name == kOperands[own].name) views[i] = call.operands[own];
  OperandView& invalid = views[op.operands.size() - 1];
  invalid.data = static_cast<std::int64_t*>(invalid.data) + place * invalid.strides[0];
  invalid.extents[0] = 1;
  return views;
}

}  // namespace

Reason rejects_parts_of(const Descriptor& descriptor, const Device& device) {
  Fault none;
  return rejects_parts(parts_of(descriptor, none), device);
}

std::size_t workspace(const Descriptor& descriptor, const Device& device) {
  Fault none;
  return parts_workspace(parts_of(descriptor, none), device);
}

std::size_t prepared_workspace(const Descriptor& descriptor, const State& state) {
  return state.owned<Parts>().workspace(descriptor);
}

Status prepare(const Descriptor& descriptor, const Device& device, State& state) {
  Fault none;
  return state.own<Parts>().prepare(descriptor, parts_of(descriptor, none), device);
}

Status bind(const Call& call, Bound& bound) {
  const Parts& parts = call.state.owned<Parts>();
  for (std::size_t part = 0; part < 2; ++part) {
    const Operator& op = parts.op(part);
    const auto views = operands_of(op, call, part);
    const Status status = parts.bind(part, call.descriptor, {views.data(), op.operands.size()},
                                     call.workspace, bound);
    if (!status.ok()) return status;
  }
  return Status::success();
}

}  // namespace planq::rotary_kv_cache_append
