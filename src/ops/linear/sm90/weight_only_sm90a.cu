// Products with weights that are codes, on the tensor cores of sm_90. For up to some hundred rows
// they become numbers in registers (sm80/weight_only_few_rows.cuh, sm90/weight_only_tiles.cuh); for
// more, panels of them do in the workspace, which the kernels for numbers multiply. See
// sm90/weight_only_heuristics.h.
#include "ops/linear/sm80/weight_only_few_rows.cuh"
#include "ops/linear/sm90/weight_only_heuristics.h"
#include "ops/linear/sm90/weight_only_launch.h"
#include "ops/linear/weight_only/panels.cuh"

namespace planq::linear {

Status preload_coded_wgmma(DType values) {
  PLANQ_TRY(coded::preload(values));
  PLANQ_TRY(decoding::preload(values));
  PLANQ_TRY(preload_numbers(values));
  return preload_float_wgmma(values, values);
}

Status launch_coded_wgmma(const Product& product, const Call& call, Bound& bound) {
  if (product.empty()) return Status::success();
  const decoding::Choice choice = decoding::choose(
      {product.m, product.n, product.k, product.batch.size(), call.device.multiprocessors},
      coded::takes(product), decoding::takes(product),
      product.weight.codes->statistics.nested_block_size != 0);
  if (choice.way == decoding::Way::FewRows) return coded::launch(product, call.device, bound);
  bool launched = false;
  if (choice.way == decoding::Way::Decoding)
    PLANQ_TRY(decoding::launch(product, choice.width, call.device, bound, launched));
  if (launched) return Status::success();
  return panels::launch(product, call, bound, [&](const Product& panel) {
    return launch_float_wgmma(panel, call.device, bound);
  });
}

}  // namespace planq::linear
