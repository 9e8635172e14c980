// Products with weights that are codes, on the tensor cores of sm_90. For a few rows they become
// numbers in registers (coded_slices.cuh); for many, panels of them do in the workspace, which the
// kernels for numbers multiply.
#include "ops/linear/coded_slices.cuh"
#include "ops/linear/weight_panels.cuh"

namespace planq::linear {

Status preload_coded_wgmma(DType values) {
  PLANQ_TRY(coded::preload(values));
  PLANQ_TRY(preload_numbers(values));
  return preload_float_wgmma(values, values);
}

Status launch_coded_wgmma(const Product& product, const Call& call, Bound& bound) {
  if (product.empty()) return Status::success();
  if (coded::takes(product)) return coded::launch(product, call.device, bound);
  return panels::launch(product, call, bound, [&](const Product& panel) {
    return launch_float_wgmma(panel, call.device, bound);
  });
}

}  // namespace planq::linear
