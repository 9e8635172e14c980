// What arrives when a kernel waits; for one file of a test. See tests/support/emulated_operands.py.
#pragma once

#include "core/bound.h"
#include "cuda/launch.cuh"

// From now on these bytes are missing, until a thread waits.
extern "C" void arrive(void* to, const void* from, std::size_t bytes) {
  planq::cuda::arrivals().push_back({to, from, bytes});
}
extern "C" bool has_arrived() { return planq::cuda::arrivals().empty(); }

namespace emulated {

struct NoStep {
  planq::Status launch(const planq::Stream&) const { return planq::Status::success(); }
};
// `follows`: a step of the same plan is before those that are added.
inline void begin(planq::Bound& bound, bool follows) {
  if (!follows) return;
  (void)bound.add(NoStep{});
  bound.follow();
}

}  // namespace emulated
