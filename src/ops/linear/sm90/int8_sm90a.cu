// The kernels of sm90/int8.cuh for products without outliers.
#include "ops/linear/sm80/launch.h"
#include "ops/linear/sm90/launch.h"
#include "ops/linear/sm90/operands.cuh"

namespace planq::linear {
namespace {

// Answers in `launched` whether the kernels take the operands; nothing is launched where not.
Status launch_choice(const Gemm& gemm, const Choice& choice, const Device& device, Bound& bound,
                     bool& launched) {
  if (choice.few_rows) {
    sm90::FewRowsArgs args;
    launched = fill(gemm, choice, args);
    return launched ? launch_few_rows<OutlierSums::None>(args, choice, gemm.batch.size(), bound)
                    : Status::success();
  }
  sm90::TileArgs args;
  launched = fill(gemm, choice, args);
  return launched ? launch_tiles<OutlierSums::None>(args, device, bound) : Status::success();
}

}  // namespace

Status preload_sm90() {
  PLANQ_TRY(preload_tiles<OutlierSums::None>());
  PLANQ_TRY(preload_few_rows<OutlierSums::None>());
  return preload_sm80();
}

Status launch_sm90(const Gemm& gemm, const Device& device, Bound& bound) {
  if (gemm.empty()) return Status::success();
  bool launched = false;
  if (!is_outside(gemm)) {
    const Choice choice =
        sm90::choose({gemm.m, gemm.n, gemm.k, gemm.batch.size(), device.multiprocessors});
    PLANQ_TRY(launch_choice(gemm, choice, device, bound, launched));
  }
  return launched ? Status::success() : launch_sm80(gemm, device, bound);
}

}  // namespace planq::linear
