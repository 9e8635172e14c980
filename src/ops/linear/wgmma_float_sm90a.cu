// The kernels of wgmma_float.cuh and their launch.
#include "ops/linear/float_launch.cuh"
#include "ops/linear/wgmma_args.cuh"
#include "ops/linear/wgmma_float.cuh"

namespace planq::linear {
namespace {

template <class T>
Status launch_type(const wgmma::TileArgs& args, const Device& device, Bound& bound) {
  const cuda::Grid grid{.blocks = std::min<std::int64_t>(args.count, device.multiprocessors),
                        .threads = dim3(wgmma::kTileThreads),
                        .dependent = bound.follows(),
                        .shared_bytes = wgmma::TileShape::kSharedBytes};
  return cuda::launch(wgmma::multiply_float_tiles<T>, grid, args, bound);
}

}  // namespace

Status preload_float_wgmma() {
  PLANQ_TRY(cuda::preload(wgmma::multiply_float_tiles<math::Half>, wgmma::TileShape::kSharedBytes));
  PLANQ_TRY(
      cuda::preload(wgmma::multiply_float_tiles<math::Bfloat16>, wgmma::TileShape::kSharedBytes));
  return preload_floats();
}

Status launch_float_wgmma(const Product& product, const Device& device, Bound& bound) {
  if (product.empty()) return Status::success();
  wgmma::TileArgs args;
  if (is_outside(product) || !fill(product, Choice{}, args))
    return launch_floats(product, Accumulation::TensorSm90, bound);
  // The last slice is whole, too: boxes beyond k are 0, which takes no part.
  constexpr int kBoxes = wgmma::kSliceBoxes;
  args.factors.k_boxes = (args.factors.k_boxes + kBoxes - 1) / kBoxes * kBoxes;
  args.factors.waits = bound.follows();
  return product.input.dtype == DType::Float16 ? launch_type<math::Half>(args, device, bound)
                                               : launch_type<math::Bfloat16>(args, device, bound);
}

}  // namespace planq::linear
