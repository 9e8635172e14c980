// The kernels of sm90/float_few_rows.cuh and their launch.
#include "ops/linear/sm90/float_few_rows.cuh"
#include "ops/linear/sm90/float_launch.cuh"

namespace planq::linear {
namespace {

using sm90::FloatChoice;

// Calls visit<shape>() for the kernel of so many tokens.
template <class Visit>
Status visit_widths(int tokens, const Visit& visit) {
  switch (tokens) {
    case 16:
      return visit.template operator()<sm90::FloatFewRowsShape<16>>();
    case 32:
      return visit.template operator()<sm90::FloatFewRowsShape<32>>();
    case 64:
      return visit.template operator()<sm90::FloatFewRowsShape<64>>();
    default:
      return visit.template operator()<sm90::FloatFewRowsShape<128>>();
  }
}

template <class X, class Shape>
constexpr bool has_kernel(sm90::Scales scales) {
  if (cuda::kTransposed<X>) return Shape::kTokens >= sm90::kTransposedWidth;
  return scales != sm90::Scales::OfBlocks || Shape::kTokens <= sm90::kMostScaledTokens;
}

template <class X, class W, sm90::Scales kScales>
Status preload_every_width() {
  for (const sm90::FloatWidth& width : sm90::kFloatWidths)
    PLANQ_TRY(visit_widths(width.tokens, [&]<class Shape>() {
      if constexpr (has_kernel<X, Shape>(kScales))
        return cuda::preload(sm90::multiply_float_few_rows<W, X, kScales, Shape>,
                             Shape::shared_bytes(Shape::stages(1)));
      else
        return Status::success();
    }));
  return Status::success();
}

template <class Shape>
bool fill(const Gemm& gemm, const FloatChoice& choice, sm90::FloatFewRowsArgs& args) {
  sm90::OperandMaps& operands = args.operands;
  if (!encode_weight(gemm, Shape::kColumns, operands.first) ||
      !encode_input(gemm, Shape::kTokens, operands.second))
    return false;
  operands.first_step = step_of(gemm, kMovedWeight);
  operands.second_step = step_of(gemm, kMovedInput);
  operands.k_blocks = sm90::slice_blocks(gemm);
  operands.first_unsigned = operands.second_unsigned = 0;
  args.outputs = outputs_of(gemm);
  args.weight_scale_row = gemm.weight_scale_row;
  args.stages = Shape::stages(choice.resident);
  args.down = static_cast<int>(cuda::ceil_div(gemm.m, Shape::kTokens));
  args.across = static_cast<int>(cuda::ceil_div(gemm.n, Shape::kColumns));
  return can_be_numbered(args.down, args.across, gemm.batch.size());
}

}  // namespace

Status preload_float_few_rows(DType input, DType weight) {
  const auto preload = [&]<class X, class W, sm90::Scales kScales>() {
    return preload_every_width<X, W, kScales>();
  };
  return sm90::visit_every_scale(input, weight, preload);
}
Status preload_float_few_rows_transposed(DType values, bool input, bool weight) {
  const auto preload = [&]<class X, class W>() {
    return preload_every_width<X, W, sm90::Scales::None>();
  };
  return sm90::visit_transposed(values, input, weight, preload);
}

Status launch_float_few_rows(const Gemm& gemm, const FloatChoice& choice, Bound& bound,
                             bool& launched) {
  return visit_widths(choice.tokens, [&]<class Shape>() {
    sm90::FloatFewRowsArgs args;
    launched = fill<Shape>(gemm, choice, args);
    if (!launched) return Status::success();
    args.operands.waits = bound.follows() ? sm90::Waits::ForBoth : sm90::Waits::Never;
    const cuda::Grid grid{.blocks = std::int64_t{args.down} * args.across * gemm.batch.size(),
                          .threads = dim3(Shape::kThreads),
                          .dependent = bound.follows(),
                          .shared_bytes = Shape::shared_bytes(args.stages)};
    const auto launch = [&]<class X, class W, sm90::Scales kScales>() {
      if constexpr (has_kernel<X, Shape>(kScales))
        return cuda::launch(sm90::multiply_float_few_rows<W, X, kScales, Shape>, grid, args, bound);
      else
        return Status::success();  // is never chosen
    };
    return sm90::visit_operands(gemm, launch);
  });
}

}  // namespace planq::linear
