// Launches of floating products on sm_90a, and the kernels of wgmma_float.cuh.
#include "ops/linear/slices.cuh"
#include "ops/linear/wgmma_float_tiles.cuh"

namespace planq::linear {
namespace {

// Calls visit<of the input, of the weight, scales, shape>(): tall tiles are for numbers of 16 bits.
template <class Visit>
Status visit_tiles(DType input, DType weight, wgmma::Scales scales, bool tall, const Visit& visit) {
  return wgmma::visit_types(input, weight, scales, [&]<class A, class B, wgmma::Scales kScales>() {
    if constexpr (sizeof(A) == 2)
      if (tall) return visit.template operator()<A, B, kScales, wgmma::TallTiles>();
    return visit.template operator()<A, B, kScales, wgmma::SmallTiles>();
  });
}

Status launch_float_tiles(const Product& product, bool tall, const Device& device, Bound& bound) {
  return visit_tiles(product.input.dtype, product.weight.dtype, wgmma::scales_of(product), tall,
                     [&]<class A, class B, wgmma::Scales kScales, class Shape>() {
                       return launch_tiles_of<A, B, kScales, Shape>(product, device, bound);
                     });
}

}  // namespace

Status preload_float_wgmma(DType input, DType weight) {
  const auto preload = [&]<class A, class B, wgmma::Scales kScales>() {
    PLANQ_TRY((preload_tiles_of<A, B, kScales, wgmma::SmallTiles>()));
    if constexpr (sizeof(A) == 2) return preload_tiles_of<A, B, kScales, wgmma::TallTiles>();
    return Status::success();
  };
  PLANQ_TRY(wgmma::visit_every_scale(input, weight, preload));
  PLANQ_TRY(preload_float_streamed(input, weight, false));
  if (is_fp8(input)) return preload_float8s();
  PLANQ_TRY(slices::preload(input));
  return preload_floats();
}

Status launch_float_wgmma(const Product& product, const Device& device, Bound& bound) {
  if (product.empty()) return Status::success();
  if (is_outside(product)) return launch_floats(product, Accumulation::TensorSm90, bound);
  const bool turned[] = {product.input.transposed(), product.weight.transposed()};
  const wgmma::FloatChoice choice = wgmma::choose_floats(
      {{product.m, product.n, product.k, product.batch.size(), device.multiprocessors},
       static_cast<int>(detail::element_bytes(product.input.dtype)),
       product.joins_by_scales,
       turned[0]});
  bool launched = false;
  if (choice.streamed) PLANQ_TRY(launch_float_streamed(product, choice, bound, launched));
  if (launched) return Status::success();
  if (turned[0] || turned[1]) return launch_float_transposed(product, choice.tall, device, bound);
  // Few rows that the copy engine does not read, since they begin anywhere.
  if (!is_fp8(product.input.dtype) && slices::takes(product)) return slices::launch(product, bound);
  return launch_float_tiles(product, choice.tall, device, bound);
}

}  // namespace planq::linear
