// Launches of grouped_linear on CUDA.
#pragma once

#include "core/bound.h"
#include "ops/linear/experts.h"

namespace planq::grouped_linear {

// An output a thread, on any GPU.
Status preload_outputs(DType input);
Status launch_outputs(const linear::Experts& experts, Bound& bound);

}  // namespace planq::grouped_linear
