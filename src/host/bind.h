// How host kernels are bound: a host kernel does all of its work at launch, so a bound launch keeps
// a copy of the call.
#pragma once

#include <memory>
#include <vector>

#include "core/registry.h"
#include "host/simd.h"

namespace planq::host {

// A call with operands of its own; device and state are the plan's.
class KeptCall {
 public:
  explicit KeptCall(const Call& call)
      : descriptor_(call.descriptor),
        device_(call.device),
        state_(call.state),
        operands_(call.operands.begin(), call.operands.end()),
        workspace_(call.workspace) {
    std::vector<OperandSpec> specs(operands_.size());
    specify(descriptor_, specs);
    for (std::size_t i = 0; i < operands_.size(); ++i) {
      if (!operands_[i].members) continue;
      members_.emplace_back(operands_[i].members, operands_[i].members + specs[i].shapes.count);
      operands_[i].members = members_.back().data();
    }
  }
  KeptCall(const KeptCall&) = delete;
  KeptCall& operator=(const KeptCall&) = delete;

  Call call() const { return {descriptor_, device_, state_, operands_, workspace_}; }

 private:
  Descriptor descriptor_;
  const Device& device_;
  const State& state_;
  std::vector<OperandView> operands_;
  std::vector<std::vector<OperandView>> members_;
  Workspace workspace_;
};

using Compute = Status (*)(const Call&, const Stream&);

// Arithmetic is IEEE's, whatever the caller's thread is set to. The threads of the pool are so too.
template <Compute kCompute>
Status compute_strictly(const Call& call, const Stream& stream) {
  const StrictFloat strict;
  return kCompute(call, stream);
}

template <Compute kCompute>
struct ComputeStep {
  std::shared_ptr<const KeptCall> kept;

  Status launch(const Stream& stream) const {
    return compute_strictly<kCompute>(kept->call(), stream);
  }
};

template <Compute kCompute>
Status bind(const Call& call, Bound& bound) {
  if (const Stream* stream = bound.now()) return compute_strictly<kCompute>(call, *stream);
  return bound.add(ComputeStep<kCompute>{std::make_shared<const KeptCall>(call)});
}

}  // namespace planq::host
