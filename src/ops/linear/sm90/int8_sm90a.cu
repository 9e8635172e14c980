// Gemms of 8-bit codes on sm_90a, without an addend.
#include "ops/linear/sm80/launch.h"
#include "ops/linear/sm90/int8_launch.cuh"
#include "ops/linear/sm90/launch.h"

namespace planq::linear {
namespace {

// Sets `launched` to false, and launches nothing, if the kernels do not take the operands.
Status launch_choice(const Gemm& gemm, const Choice& choice, const Device& device, Bound& bound,
                     bool& launched) {
  if (choice.few_rows) {
    sm90::FewRowsArgs args;
    launched = fill_few_rows(gemm, choice, args);
    return launched ? launch_few_rows<sm90::NoAddend>(args, choice, gemm.batch.size(), bound)
                    : Status::success();
  }
  sm90::TileArgs args;
  launched = fill_tiles(gemm, sm90::kTileRows, args);
  return launched ? launch_tiles<sm90::NoAddend>(args, device, bound) : Status::success();
}

}  // namespace

Status preload_sm90() {
  PLANQ_TRY(preload_tiles<sm90::NoAddend>());
  PLANQ_TRY(preload_few_rows<sm90::NoAddend>());
  return preload_sm80();
}

Status launch_sm90(const Gemm& gemm, sm90::Body body, const Device& device, Bound& bound) {
  if (gemm.empty()) return Status::success();
  bool launched = false;
  if (!is_outside(gemm)) {
    const Choice choice =
        sm90::choose({gemm.m, gemm.n, gemm.k, gemm.batch.size(), device.multiprocessors}, body);
    bound.name_body(name_of(choice.body()));
    PLANQ_TRY(launch_choice(gemm, choice, device, bound, launched));
  }
  if (launched) return Status::success();
  bound.name_body("mma");
  return launch_sm80(gemm, device, bound);
}

}  // namespace planq::linear
