// Gemms of several experts with codes on both sides, on sm_90a: int8, or floats of 8 bits.
#pragma once

#include "core/bound.h"
#include "core/registry.h"
#include "ops/linear/experts.h"

namespace planq::linear::sm90::experts {

// Tiles of all experts, which are listed in the workspace first. Rows of nobody become 0. Sets
// `launched` to false, and launches nothing, if TMA cannot read an operand.
std::size_t workspace(std::int64_t rows, std::int64_t experts);
Status preload(DType input, DType weight);
Status launch(const Experts& experts, const Call& call, Bound& bound, bool& launched);

}  // namespace planq::linear::sm90::experts
