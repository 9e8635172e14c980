// Gemms of several experts with codes on both sides: the tiles of int8_tiles.cuh and of
// float_tiles.cuh, by a list.
#include "ops/linear/sm90/experts_launch.h"
#include "ops/linear/sm90/float_launch.cuh"
#include "ops/linear/sm90/float_tiles.cuh"
#include "ops/linear/sm90/int8_tiles.cuh"
#include "ops/linear/sm90/listed_tiles.cuh"

namespace planq::linear::sm90::experts {
namespace {

struct ListedIntegers : NoAddend {
  using TileArgs = ListedTiles<sm90::TileArgs>;
};
using ListedFloats = ListedTiles<FloatTileArgs>;
static_assert(SmallTiles::kRows == kTileRows);

// Calls visit(kernel, its shared memory, arguments of its type).
template <class Visit>
Status visit_kernel(DType input, DType weight, Scales scales, const Visit& visit) {
  if (input == DType::Int8)
    return visit(multiply_tiles<ListedIntegers>, TileShape::kSharedBytes,
                 ListedIntegers::TileArgs{});
  return visit_float8s(input, weight, scales, [&]<class A, class B, Scales kScales>() {
    return visit(multiply_float_tiles<A, B, kScales, SmallTiles, ListedFloats>,
                 SmallTiles::kSharedBytes, ListedFloats{});
  });
}

// The gemm of all experts, as a batch in which the weight alone moves.
Gemm batch_of(const Experts& experts) {
  Gemm gemm = experts.gemm;
  AxisOf<kMovedOperands> axis;
  axis.extent = experts.count;
  axis.stride[kMovedWeight] = experts.code_step;
  gemm.batch.append(axis);
  return gemm;
}

// What the kernels have beside the arguments of all tiles.
void fill(const Gemm&, sm90::TileArgs&) {}
void fill(const Gemm& gemm, FloatTileArgs& args) {
  args.operands.k_blocks = slice_blocks(gemm);
  args.weight_scale_row = gemm.weight_scale_row;
}

template <class Args>
Status launch_listed(void (*kernel)(Args), int shared_bytes, Args& args, const Experts& experts,
                     const Call& call, Bound& bound) {
  Scratch scratch(call.workspace);
  const ExpertRoom room(experts.gemm.m, experts.count, kTileRows, scratch);
  PLANQ_TRY(list_tiles(experts, kTileRows, room, call.device, bound));
  args.operands.waits = Waits::Never;
  args.outputs.weight_scale_batch = experts.scale_step;
  args.outputs.bias_batch = experts.bias_step;
  args.tiles = room.tiles;
  args.count = room.count;
  const std::int64_t most =
      most_expert_tiles(experts.gemm.m, experts.count, kTileRows) * args.grid.across;
  const cuda::Grid grid{.blocks = std::min<std::int64_t>(most, call.device.multiprocessors),
                        .threads = dim3(kTileThreads),
                        .shared_bytes = shared_bytes};
  return cuda::launch(kernel, grid, args, bound);
}

}  // namespace

std::size_t workspace(std::int64_t rows, std::int64_t experts) {
  Scratch scratch;
  (void)ExpertRoom(rows, experts, kTileRows, scratch);
  return scratch.bytes();
}

Status preload(DType input, DType weight) {
  PLANQ_TRY(cuda::preload(list_expert_tiles));
  for (const Scales scales : {Scales::OfRowsAndColumns, Scales::OfBlocks})
    PLANQ_TRY(visit_kernel(input, weight, scales, [](auto kernel, int bytes, const auto&) {
      return cuda::preload(kernel, bytes);
    }));
  return Status::success();
}

Status launch(const Experts& experts, const Call& call, Bound& bound, bool& launched) {
  launched = false;
  const Gemm gemm = batch_of(experts);
  if (is_outside(gemm)) return Status::success();
  return visit_kernel(gemm.input.dtype, gemm.weight.dtype, scales_of(gemm),
                      [&](auto kernel, int bytes, auto args) {
                        launched = fill_tiles(gemm, kTileRows, args);
                        if (!launched) return Status::success();
                        fill(gemm, args);
                        return launch_listed(kernel, bytes, args, experts, call, bound);
                      });
}

}  // namespace planq::linear::sm90::experts
