// Launches of floating products on sm_90a, and the kernels of sm90/float_tiles.cuh.
#include "ops/linear/sm80/float_few_rows.cuh"
#include "ops/linear/sm90/float_launch.cuh"
#include "ops/linear/sm90/float_tiles.cuh"

namespace planq::linear {
namespace {

// Calls visit<shape>(): tall tiles are for numbers of 16 bits.
template <class A, class Visit>
Status visit_shapes(bool tall, const Visit& visit) {
  if constexpr (sizeof(A) == 2)
    if (tall) return visit.template operator()<wgmma::TallTiles>();
  return visit.template operator()<wgmma::SmallTiles>();
}

template <class A, class B, wgmma::Scales kScales>
Status preload_every_shape() {
  for (const bool tall : {false, true})
    PLANQ_TRY(visit_shapes<A>(tall, [&]<class Shape>() {
      return cuda::preload(wgmma::multiply_float_tiles<A, B, kScales, Shape>, Shape::kSharedBytes);
    }));
  return Status::success();
}

// What the copy engine does not read. The tensor cores that this file is for add numbers of 16 bits
// in mma.sync as they do in wgmma.
Status preload_unread(DType values) {
  PLANQ_TRY(preload_float_mma(values));
  return preload_floats();
}
Status launch_unread(const Product& product, const Device& device, Bound& bound) {
  if (is_fp8(product.input.dtype) || product.k > kMostFloatMmaTerms)
    return launch_floats(product, Accumulation::TensorSm90, bound);
  return launch_float_mma(product, device, bound);
}

template <class A, class B, wgmma::Scales kScales, class Shape>
Status launch_tiles_of(const Product& product, const Device& device, Bound& bound) {
  wgmma::FloatTileArgs args;
  if (!fill(product, Shape::kRows, args)) return launch_unread(product, device, bound);
  args.factors.k_boxes = wgmma::slice_boxes(product);
  args.factors.waits = bound.follows() ? wgmma::Waits::ForBoth : wgmma::Waits::Never;
  args.weight_scale_row = product.weight_scale_row;
  const cuda::Grid grid{.blocks = std::min<std::int64_t>(args.count, device.multiprocessors),
                        .threads = dim3(wgmma::kTileThreads),
                        .dependent = bound.follows(),
                        .shared_bytes = Shape::kSharedBytes};
  return cuda::launch(wgmma::multiply_float_tiles<A, B, kScales, Shape>, grid, args, bound);
}

Status launch_float_tiles(const Product& product, bool tall, const Device& device, Bound& bound) {
  return wgmma::visit_sides(product, [&]<class A, class B, wgmma::Scales kScales>() {
    return visit_shapes<A>(tall, [&]<class Shape>() {
      return launch_tiles_of<A, B, kScales, Shape>(product, device, bound);
    });
  });
}

}  // namespace

Status preload_float_wgmma(DType input, DType weight) {
  const auto preload = [&]<class A, class B, wgmma::Scales kScales>() {
    return preload_every_shape<A, B, kScales>();
  };
  PLANQ_TRY(wgmma::visit_every_scale(input, weight, preload));
  PLANQ_TRY(preload_float_streamed(input, weight));
  if (is_fp8(input)) return preload_float8s();
  PLANQ_TRY(slices::preload(input));
  return preload_unread(input);
}
Status preload_float_transposed(DType values, bool input, bool weight) {
  const auto preload = [&]<class A, class B>() {
    return preload_every_shape<A, B, wgmma::Scales::None>();
  };
  PLANQ_TRY(wgmma::visit_transposed(values, input, weight, preload));
  PLANQ_TRY(preload_float_streamed_transposed(values, input, weight));
  return preload_unread(values);
}

Status launch_float_wgmma(const Product& product, const Device& device, Bound& bound) {
  if (product.empty()) return Status::success();
  if (is_outside(product)) return launch_unread(product, device, bound);
  const wgmma::FloatChoice choice = wgmma::choose_floats(
      {{product.m, product.n, product.k, product.batch.size(), device.multiprocessors},
       static_cast<int>(detail::element_bytes(product.input.dtype)),
       product.joins_by_scales,
       product.input.transposed()});
  bool launched = false;
  if (choice.streamed) PLANQ_TRY(launch_float_streamed(product, choice, bound, launched));
  if (launched) return Status::success();
  // Few rows that the copy engine does not read, since they begin anywhere.
  if (!is_fp8(product.input.dtype) && slices::takes(product)) return slices::launch(product, bound);
  return launch_float_tiles(product, choice.tall, device, bound);
}

}  // namespace planq::linear
