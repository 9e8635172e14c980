// Gemms with weights that are codes on the tensor cores of sm_90a, in the order of
// Accumulation::TensorSm90: panels of the weight are dequantized to the workspace, and the kernels
// for numbers multiply these (weight_only/panels.cuh). The order GroupsSm90 has kernels that read
// the codes.
#include "ops/linear/weight_only/panels.cuh"

namespace planq::linear {

Status preload_weight_only_sm90(DType values) {
  PLANQ_TRY(preload_dequantize(values));
  return preload_float_sm90(values, values);
}

Status launch_weight_only_sm90(const Gemm& gemm, const Call& call, Bound& bound) {
  if (gemm.empty()) return Status::success();
  return panels::launch(gemm, call, bound, [&](const Gemm& panel) {
    return bound.add_part([&](Bound& steps) {
      return launch_float_sm90(panel, sm90::Body::Fastest, call.device, steps);
    });
  });
}

}  // namespace planq::linear
