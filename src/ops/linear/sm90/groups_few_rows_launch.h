// What sm90/groups_few_rows_sm90a.cu calls of the files that have the kernels of
// sm90/groups_few_rows.cuh, one for each type of numbers.
#pragma once

#include "core/bound.h"
#include "core/device.h"
#include "ops/linear/gemm.h"
#include "ops/linear/weight_only/codes.h"

namespace planq::linear::sm90::groups::few_rows {

Status preload_f16(const CodeKind& kind);
Status preload_bf16(const CodeKind& kind);
Status launch_f16(const Gemm& gemm, const Device& device, Bound& bound, bool& launched);
Status launch_bf16(const Gemm& gemm, const Device& device, Bound& bound, bool& launched);

}  // namespace planq::linear::sm90::groups::few_rows
