// The kernels of wgmma_float.cuh, and for a few rows those of slices.cuh, and their launch.
#include "ops/linear/float_launch.cuh"
#include "ops/linear/slices.cuh"
#include "ops/linear/wgmma_args.cuh"
#include "ops/linear/wgmma_float.cuh"

namespace planq::linear {
namespace {

using wgmma::Scales;

Scales scales_of(const Product& product) {
  if (!product.epilogue.weight_scale) return Scales::None;
  return product.joins_by_scales ? Scales::OfBlocks : Scales::OfRowsAndColumns;
}

// Calls visit(kernel) for these types and scales.
template <class A, class B, class Visit>
Status visit_scales(Scales scales, const Visit& visit) {
  return scales == Scales::OfBlocks
             ? visit(wgmma::multiply_float_tiles<A, B, Scales::OfBlocks>)
             : visit(wgmma::multiply_float_tiles<A, B, Scales::OfRowsAndColumns>);
}
template <class A, class Visit>
Status visit_weights(DType weight, Scales scales, const Visit& visit) {
  return weight == DType::Float8E4M3FN ? visit_scales<A, cuda::E4M3>(scales, visit)
                                       : visit_scales<A, cuda::E5M2>(scales, visit);
}
template <class T, class Visit>
Status visit_numbers(Scales scales, const Visit& visit) {
  return scales == Scales::None
             ? visit(wgmma::multiply_float_tiles<T, T, Scales::None>)
             : visit(wgmma::multiply_float_tiles<T, T, Scales::OfRowsAndColumns>);
}
template <class Visit>
Status visit_kernel(DType input, DType weight, Scales scales, const Visit& visit) {
  switch (input) {
    case DType::Float16:
      return visit_numbers<math::Half>(scales, visit);
    case DType::BFloat16:
      return visit_numbers<math::Bfloat16>(scales, visit);
    case DType::Float8E4M3FN:
      return visit_weights<cuda::E4M3>(weight, scales, visit);
    default:
      return visit_weights<cuda::E5M2>(weight, scales, visit);
  }
}

Status preload_kernel(DType input, DType weight, Scales scales) {
  return visit_kernel(input, weight, scales, [](auto kernel) {
    return cuda::preload(kernel, wgmma::TileShape::kSharedBytes);
  });
}

}  // namespace

Status preload_float_wgmma(DType input, DType weight) {
  if (!is_fp8(input)) {
    PLANQ_TRY(slices::preload(input));
    PLANQ_TRY(preload_kernel(input, weight, Scales::None));
    PLANQ_TRY(preload_kernel(input, weight, Scales::OfRowsAndColumns));
    return preload_floats();
  }
  PLANQ_TRY(preload_kernel(input, weight, Scales::OfRowsAndColumns));
  PLANQ_TRY(preload_kernel(input, weight, Scales::OfBlocks));
  return preload_float8s();
}

Status launch_float_wgmma(const Product& product, const Device& device, Bound& bound) {
  if (product.empty()) return Status::success();
  if (!is_fp8(product.input.dtype) && slices::takes(product)) return slices::launch(product, bound);
  wgmma::FloatTileArgs args;
  if (is_outside(product) || !fill(product, Choice{}, args))
    return launch_floats(product, Accumulation::TensorSm90, bound);
  // The last slice is whole, too: boxes beyond k are 0, which takes no part.
  const int boxes = static_cast<int>(math::kTensorCoreSlice *
                                     detail::element_bytes(product.input.dtype) / cuda::kBoxBytes);
  args.factors.k_boxes = (args.factors.k_boxes + boxes - 1) / boxes * boxes;
  args.factors.waits = bound.follows();
  args.weight_scale_row = product.weight_scale_row;
  const cuda::Grid grid{.blocks = std::min<std::int64_t>(args.count, device.multiprocessors),
                        .threads = dim3(wgmma::kTileThreads),
                        .dependent = bound.follows(),
                        .shared_bytes = wgmma::TileShape::kSharedBytes};
  return visit_kernel(product.input.dtype, product.weight.dtype, scales_of(product),
                      [&](auto kernel) { return cuda::launch(kernel, grid, args, bound); });
}

}  // namespace planq::linear
