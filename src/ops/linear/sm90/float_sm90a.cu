// Floating gemms on sm_90a: which kernel takes a gemm, and the kernels of sm90/float_tiles.cuh.
#include "ops/linear/sm80/float_few_rows.cuh"
#include "ops/linear/sm90/float_launch.cuh"
#include "ops/linear/sm90/float_tiles.cuh"

namespace planq::linear {
namespace {

// Calls visit<shape>(). Tall tiles are for 16-bit numbers.
template <class A, class Visit>
Status visit_shapes(bool tall, const Visit& visit) {
  if constexpr (sizeof(A) == 2)
    if (tall) return visit.template operator()<sm90::TallTiles>();
  return visit.template operator()<sm90::SmallTiles>();
}

template <class A, class B, sm90::Scales kScales>
Status preload_every_shape() {
  for (const bool tall : {false, true})
    PLANQ_TRY(visit_shapes<A>(tall, [&]<class Shape>() {
      return cuda::preload(sm90::multiply_float_tiles<A, B, kScales, Shape>, Shape::kSharedBytes);
    }));
  return Status::success();
}

// Gemms that TMA cannot read. For 16-bit numbers, mma.sync has the same bits as wgmma on sm_90;
// 8-bit floating codes take the SIMT kernels.
Status preload_unread(DType values) {
  PLANQ_TRY(preload_float_sm80(values));
  return preload_floats();
}
Status launch_unread(const Gemm& gemm, const Device& device, Bound& bound) {
  if (is_fp8(gemm.input.dtype) || gemm.k > kMostSm80Terms) {
    bound.name_body("outputs");
    return launch_floats(gemm, Accumulation::TensorSm90, bound);
  }
  bound.name_body("mma");
  return launch_float_sm80(gemm, device, bound);
}

// The same, where there may be few rows.
Status launch_unaligned(const Gemm& gemm, const Device& device, Bound& bound) {
  if (is_fp8(gemm.input.dtype) || !float_few_rows::takes(gemm))
    return launch_unread(gemm, device, bound);
  bound.name_body(name_of(sm90::Body::MmaFewRows));
  return float_few_rows::launch(gemm, bound);
}

template <class A, class B, sm90::Scales kScales, class Shape>
Status launch_tiles_of(const Gemm& gemm, const Device& device, Bound& bound, bool& launched) {
  sm90::FloatTileArgs args;
  launched = fill_tiles(gemm, Shape::kRows, args);
  if (!launched) return Status::success();
  args.operands.k_blocks = sm90::slice_blocks(gemm);
  args.operands.waits = bound.follows() ? sm90::Waits::ForBoth : sm90::Waits::Never;
  args.weight_scale_row = gemm.weight_scale_row;
  const cuda::Grid grid{.blocks = std::min<std::int64_t>(args.grid.count, device.multiprocessors),
                        .threads = dim3(sm90::kTileThreads),
                        .dependent = bound.follows(),
                        .shared_bytes = Shape::kSharedBytes};
  return cuda::launch(sm90::multiply_float_tiles<A, B, kScales, Shape>, grid, args, bound);
}

// Sets `launched` to false, and launches nothing, if TMA cannot read an operand.
Status launch_float_tiles(const Gemm& gemm, bool tall, const Device& device, Bound& bound,
                          bool& launched) {
  return sm90::visit_operands(gemm, [&]<class A, class B, sm90::Scales kScales>() {
    return visit_shapes<A>(tall, [&]<class Shape>() {
      return launch_tiles_of<A, B, kScales, Shape>(gemm, device, bound, launched);
    });
  });
}

}  // namespace

Status preload_float_sm90(DType input, DType weight) {
  const auto preload = [&]<class A, class B, sm90::Scales kScales>() {
    return preload_every_shape<A, B, kScales>();
  };
  PLANQ_TRY(sm90::visit_every_scale(input, weight, preload));
  PLANQ_TRY(preload_float_few_rows(input, weight));
  if (is_fp8(input)) return preload_float8s();
  PLANQ_TRY(float_few_rows::preload(input));
  return preload_unread(input);
}
Status preload_float_transposed(DType values, bool input, bool weight) {
  const auto preload = [&]<class A, class B>() {
    return preload_every_shape<A, B, sm90::Scales::None>();
  };
  PLANQ_TRY(sm90::visit_transposed(values, input, weight, preload));
  PLANQ_TRY(preload_float_few_rows_transposed(values, input, weight));
  return preload_unread(values);
}

Status launch_float_sm90(const Gemm& gemm, sm90::Body body, const Device& device, Bound& bound) {
  if (gemm.empty()) return Status::success();
  if (is_outside(gemm)) return launch_unread(gemm, device, bound);
  if (body == sm90::Body::MmaFewRows) return launch_unaligned(gemm, device, bound);
  const sm90::FloatChoice choice =
      sm90::choose_floats({{gemm.m, gemm.n, gemm.k, gemm.batch.size(), device.multiprocessors},
                           static_cast<int>(detail::element_bytes(gemm.input.dtype)),
                           gemm.joins_by_scales,
                           gemm.input.transposed()},
                          body);
  bool launched = false;
  bound.name_body(name_of(choice.body()));
  PLANQ_TRY(choice.few_rows ? launch_float_few_rows(gemm, choice, bound, launched)
                            : launch_float_tiles(gemm, choice.tall, device, bound, launched));
  return launched ? Status::success() : launch_unaligned(gemm, device, bound);
}

}  // namespace planq::linear
