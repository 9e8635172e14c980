// The kernels of wgmma_float.cuh for numbers of 16 bits of which a side or both lie transposed, and
// their launch.
#include "ops/linear/wgmma_float_tiles.cuh"

namespace planq::linear {
namespace {

constexpr wgmma::Scales kPlain = wgmma::Scales::None;

}  // namespace

Status preload_float_transposed(DType values, bool input, bool weight) {
  if (!input) PLANQ_TRY(preload_float_streamed(values, values, true));
  PLANQ_TRY(wgmma::visit_transposed(values, input, weight, [&]<class A, class B>() {
    PLANQ_TRY((preload_tiles_of<A, B, kPlain, wgmma::SmallTiles>()));
    return preload_tiles_of<A, B, kPlain, wgmma::TallTiles>();
  }));
  return preload_floats();
}

Status launch_float_transposed(const Product& product, bool tall, const Device& device,
                               Bound& bound) {
  return wgmma::visit_transposed(
      product.input.dtype, product.input.transposed(), product.weight.transposed(),
      [&]<class A, class B>() {
        return tall ? launch_tiles_of<A, B, kPlain, wgmma::TallTiles>(product, device, bound)
                    : launch_tiles_of<A, B, kPlain, wgmma::SmallTiles>(product, device, bound);
      });
}

}  // namespace planq::linear
