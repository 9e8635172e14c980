// The launch of the kernels of sm90/weight_only_tiles.cuh, which sm90/weight_only_sm90a.cu chooses
// among.
#pragma once

#include "core/bound.h"
#include "core/device.h"
#include "ops/linear/gemm.h"

namespace planq::linear::sm90::weight_only {

// Codes in vectors, under statistics in float32 that runs of terms share and that begin anew with
// each column; whole slices.
bool takes(const Gemm& gemm);

Status preload(DType values);
// `width`: which of kWidths (sm90/heuristics.h). Answers in `launched` whether the copy
// engine reads the factors; nothing is launched where not.
Status launch(const Gemm& gemm, int width, const Device& device, Bound& bound, bool& launched);

}  // namespace planq::linear::sm90::weight_only
