// Launches of the kernels of wgmma_float.cuh.
#pragma once

#include <algorithm>

#include "ops/linear/wgmma_float.cuh"
#include "ops/linear/wgmma_float_args.cuh"

namespace planq::linear {

// A, B: the numbers of the input and of the weight.
template <class A, class B, wgmma::Scales kScales, class Shape>
Status preload_tiles_of() {
  return cuda::preload(wgmma::multiply_float_tiles<A, B, kScales, Shape>, Shape::kSharedBytes);
}

template <class A, class B, wgmma::Scales kScales, class Shape>
Status launch_tiles_of(const Product& product, const Device& device, Bound& bound) {
  wgmma::FloatTileArgs args;
  if (!fill(product, Shape::kRows, args))
    return launch_floats(product, Accumulation::TensorSm90, bound);
  args.factors.k_boxes = wgmma::slice_boxes(product);
  args.factors.waits = bound.follows();
  args.weight_scale_row = product.weight_scale_row;
  const cuda::Grid grid{.blocks = std::min<std::int64_t>(args.count, device.multiprocessors),
                        .threads = dim3(wgmma::kTileThreads),
                        .dependent = bound.follows(),
                        .shared_bytes = Shape::kSharedBytes};
  return cuda::launch(wgmma::multiply_float_tiles<A, B, kScales, Shape>, grid, args, bound);
}

}  // namespace planq::linear
