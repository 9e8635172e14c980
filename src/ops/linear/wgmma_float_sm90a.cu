// Launches of floating products on sm_90a, and the kernels of wgmma_float.cuh.
#include "ops/linear/slices.cuh"
#include "ops/linear/wgmma_float.cuh"
#include "ops/linear/wgmma_float_args.cuh"

namespace planq::linear {
namespace {

Status launch_float_tiles(const Product& product, const Device& device, Bound& bound) {
  wgmma::FloatTileArgs args;
  if (!fill(product, Choice{}, args))
    return launch_floats(product, Accumulation::TensorSm90, bound);
  args.factors.k_boxes = wgmma::slice_boxes(product);
  args.factors.waits = bound.follows();
  args.weight_scale_row = product.weight_scale_row;
  const cuda::Grid grid{.blocks = std::min<std::int64_t>(args.count, device.multiprocessors),
                        .threads = dim3(wgmma::kTileThreads),
                        .dependent = bound.follows(),
                        .shared_bytes = wgmma::TileShape::kSharedBytes};
  const auto launch = [&]<class A, class B, wgmma::Scales kScales>() {
    return cuda::launch(wgmma::multiply_float_tiles<A, B, kScales>, grid, args, bound);
  };
  return wgmma::visit_types(product.input.dtype, product.weight.dtype, wgmma::scales_of(product),
                            launch);
}

}  // namespace

Status preload_float_wgmma(DType input, DType weight) {
  const auto preload = [&]<class A, class B, wgmma::Scales kScales>() {
    return cuda::preload(wgmma::multiply_float_tiles<A, B, kScales>,
                         wgmma::TileShape::kSharedBytes);
  };
  PLANQ_TRY(wgmma::visit_every_scale(input, weight, preload));
  PLANQ_TRY(preload_float_streamed(input, weight));
  if (is_fp8(input)) return preload_float8s();
  PLANQ_TRY(slices::preload<slices::NumberWeights>(input));
  return preload_floats();
}

Status launch_float_wgmma(const Product& product, const Device& device, Bound& bound) {
  if (product.empty()) return Status::success();
  if (is_outside(product)) return launch_floats(product, Accumulation::TensorSm90, bound);
  const wgmma::FloatChoice choice = wgmma::choose_floats(
      {{product.m, product.n, product.k, product.batch.size(), device.multiprocessors},
       static_cast<int>(detail::element_bytes(product.input.dtype)),
       product.joins_by_scales});
  bool launched = false;
  if (choice.streamed) PLANQ_TRY(launch_float_streamed(product, choice, bound, launched));
  if (launched) return Status::success();
  // Few rows that the copy engine does not read, since they begin anywhere.
  if (!is_fp8(product.input.dtype) && slices::takes(product))
    return slices::launch<slices::NumberWeights>(product, bound);
  return launch_float_tiles(product, device, bound);
}

}  // namespace planq::linear
