// The kernels of sm90/int8.cuh for products without outliers.
#include "ops/linear/sm80/launch.h"
#include "ops/linear/sm90/launch.h"
#include "ops/linear/sm90/operands.cuh"

namespace planq::linear {
namespace {

// Answers in `launched` whether the kernels take the operands; nothing is launched where not.
Status launch_choice(const Product& product, const Choice& choice, const Device& device,
                     Bound& bound, bool& launched) {
  if (choice.streamed) {
    wgmma::StreamArgs args;
    launched = fill(product, choice, args);
    return launched ? launch_streamed<Lists::None>(args, choice, product.batch.size(), bound)
                    : Status::success();
  }
  wgmma::TileArgs args;
  launched = fill(product, choice, args);
  return launched ? launch_tiles<Lists::None>(args, device, bound) : Status::success();
}

}  // namespace

Status preload_wgmma() {
  PLANQ_TRY(preload_tiles<Lists::None>());
  PLANQ_TRY(preload_streamed<Lists::None>());
  return preload_mma();
}

Status launch_wgmma(const Product& product, const Device& device, Bound& bound) {
  if (product.empty()) return Status::success();
  bool launched = false;
  if (!is_outside(product)) {
    const Choice choice = wgmma::choose(
        {product.m, product.n, product.k, product.batch.size(), device.multiprocessors});
    PLANQ_TRY(launch_choice(product, choice, device, bound, launched));
  }
  return launched ? Status::success() : launch_mma(product, device, bound);
}

}  // namespace planq::linear
