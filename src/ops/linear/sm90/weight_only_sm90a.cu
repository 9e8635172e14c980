// Gemms with weights that are codes, on the tensor cores of sm_90a. With up to some hundred rows of
// input, the weight is dequantized in registers (sm80/weight_only_few_rows.cuh,
// sm90/weight_only_tiles.cuh). With more, panels of it are dequantized to the workspace, and the
// floating kernels multiply these (weight_only/panels.cuh). sm90/heuristics.h chooses.
#include "ops/linear/sm80/weight_only_few_rows.cuh"
#include "ops/linear/sm90/heuristics.h"
#include "ops/linear/sm90/weight_only_launch.h"
#include "ops/linear/weight_only/panels.cuh"

namespace planq::linear {

Status preload_weight_only_sm90(DType values) {
  PLANQ_TRY(weight_only_few_rows::preload(values));
  PLANQ_TRY(sm90::weight_only::preload(values));
  PLANQ_TRY(preload_dequantize(values));
  return preload_float_sm90(values, values);
}

Status launch_weight_only_sm90(const Gemm& gemm, const Call& call, Bound& bound) {
  if (gemm.empty()) return Status::success();
  const sm90::weight_only::Choice choice = sm90::weight_only::choose(
      {gemm.m, gemm.n, gemm.k, gemm.batch.size(), call.device.multiprocessors},
      weight_only_few_rows::takes(gemm), sm90::weight_only::takes(gemm),
      gemm.weight.codes->statistics.nested_block_size != 0);
  if (choice.kind == sm90::weight_only::Kind::FewRows)
    return weight_only_few_rows::launch(gemm, call.device, bound);
  bool launched = false;
  if (choice.kind == sm90::weight_only::Kind::Tiles)
    PLANQ_TRY(sm90::weight_only::launch(gemm, choice.width, call.device, bound, launched));
  if (launched) return Status::success();
  return panels::launch(gemm, call, bound, [&](const Gemm& panel) {
    return bound.add_part([&](Bound& steps) {
      return launch_float_sm90(panel, sm90::Body::Fastest, call.device, steps);
    });
  });
}

}  // namespace planq::linear
