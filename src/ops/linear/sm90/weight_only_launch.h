// The launch of the kernels in sm90/weight_only_tiles.cuh. sm90/weight_only_sm90a.cu chooses
// between them and others.
#pragma once

#include "core/bound.h"
#include "core/device.h"
#include "ops/linear/gemm.h"

namespace planq::linear::sm90::weight_only {

// Whether these kernels take a gemm: whole slices, codes that are vectors, and float32 statistics
// for whole runs, which begin anew with each column.
bool takes(const Gemm& gemm);

Status preload(DType values);
// `width`: an index of kWidths (sm90/heuristics.h). Sets `launched` to false, and launches nothing,
// if TMA cannot read an operand.
Status launch(const Gemm& gemm, int width, const Device& device, Bound& bound, bool& launched);

}  // namespace planq::linear::sm90::weight_only
