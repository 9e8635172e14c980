// The kernels of sm90/float_few_rows.cuh and their launch.
#include "ops/linear/sm90/float_few_rows.cuh"
#include "ops/linear/sm90/float_launch.cuh"

namespace planq::linear {
namespace {

using wgmma::FloatChoice;

// Calls visit<the kernel's shape>() for the one of these tokens.
template <class Visit>
Status visit_widths(int tokens, const Visit& visit) {
  switch (tokens) {
    case 16:
      return visit.template operator()<wgmma::FloatStreamShape<16>>();
    case 32:
      return visit.template operator()<wgmma::FloatStreamShape<32>>();
    case 64:
      return visit.template operator()<wgmma::FloatStreamShape<64>>();
    default:
      return visit.template operator()<wgmma::FloatStreamShape<128>>();
  }
}

template <class X, class Shape>
constexpr bool has_kernel(wgmma::Scales scales) {
  if (cuda::kTransposed<X>) return Shape::kTokens >= wgmma::kTransposedWidth;
  return scales != wgmma::Scales::OfBlocks || Shape::kTokens <= wgmma::kMostScaledTokens;
}

template <class X, class W, wgmma::Scales kScales>
Status preload_every_width() {
  for (const wgmma::FloatWidth& width : wgmma::kFloatWidths)
    PLANQ_TRY(visit_widths(width.tokens, [&]<class Shape>() {
      if constexpr (has_kernel<X, Shape>(kScales))
        return cuda::preload(wgmma::multiply_float_streamed<W, X, kScales, Shape>,
                             Shape::shared_bytes(Shape::stages(1)));
      else
        return Status::success();
    }));
  return Status::success();
}

template <class Shape>
bool fill(const Product& product, const FloatChoice& choice, wgmma::FloatStreamArgs& args) {
  wgmma::Factors& factors = args.factors;
  if (!encode_weight(product, Shape::kColumns, factors.first) ||
      !encode_input(product, Shape::kTokens, factors.second))
    return false;
  factors.first_step = step_of(product, kMovedWeight);
  factors.second_step = step_of(product, kMovedInput);
  factors.k_boxes = wgmma::slice_boxes(product);
  factors.first_unsigned = factors.second_unsigned = 0;
  args.outputs = outputs_of(product);
  args.weight_scale_row = product.weight_scale_row;
  args.stages = Shape::stages(choice.resident);
  args.down = static_cast<int>(cuda::ceil_div(product.m, Shape::kTokens));
  args.across = static_cast<int>(cuda::ceil_div(product.n, Shape::kColumns));
  return can_be_numbered(args.down, args.across, product.batch.size());
}

}  // namespace

Status preload_float_streamed(DType input, DType weight) {
  const auto preload = [&]<class X, class W, wgmma::Scales kScales>() {
    return preload_every_width<X, W, kScales>();
  };
  return wgmma::visit_every_scale(input, weight, preload);
}
Status preload_float_streamed_transposed(DType values, bool input, bool weight) {
  const auto preload = [&]<class X, class W>() {
    return preload_every_width<X, W, wgmma::Scales::None>();
  };
  return wgmma::visit_transposed(values, input, weight, preload);
}

Status launch_float_streamed(const Product& product, const FloatChoice& choice, Bound& bound,
                             bool& launched) {
  return visit_widths(choice.tokens, [&]<class Shape>() {
    wgmma::FloatStreamArgs args;
    launched = fill<Shape>(product, choice, args);
    if (!launched) return Status::success();
    args.factors.waits = bound.follows() ? wgmma::Waits::ForBoth : wgmma::Waits::Never;
    const cuda::Grid grid{.blocks = std::int64_t{args.down} * args.across * product.batch.size(),
                          .threads = dim3(Shape::kThreads),
                          .dependent = bound.follows(),
                          .shared_bytes = Shape::shared_bytes(args.stages)};
    const auto launch = [&]<class X, class W, wgmma::Scales kScales>() {
      if constexpr (has_kernel<X, Shape>(kScales))
        return cuda::launch(wgmma::multiply_float_streamed<W, X, kScales, Shape>, grid, args,
                            bound);
      else
        return Status::success();  // never chosen
    };
    return wgmma::visit_sides(product, launch);
  });
}

}  // namespace planq::linear
