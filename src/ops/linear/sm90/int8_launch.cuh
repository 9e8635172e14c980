// From a gemm of 8-bit codes to the launch of a kernel in int8_tiles.cuh or int8_few_rows.cuh.
// `Addend`: see addend.cuh.
#pragma once

#include <algorithm>

#include "ops/linear/sm90/heuristics.h"
#include "ops/linear/sm90/int8_few_rows.cuh"
#include "ops/linear/sm90/int8_tiles.cuh"
#include "ops/linear/sm90/operands.cuh"

namespace planq::linear {

using sm90::Choice;

inline bool fill_few_rows(const Gemm& gemm, const Choice& choice, sm90::FewRowsArgs& args) {
  sm90::OperandMaps& operands = args.operands;
  if (!encode_weight(gemm, sm90::kFewRowsColumns, operands.first) ||
      !encode_input(gemm, choice.width, operands.second))
    return false;
  operands.first_step = step_of(gemm, kMovedWeight);
  operands.second_step = step_of(gemm, kMovedInput);
  operands.k_blocks = k_blocks_of(gemm);
  operands.first_unsigned = gemm.weight.dtype == DType::UInt8;
  operands.second_unsigned = gemm.input.dtype == DType::UInt8;
  args.outputs = outputs_of(gemm);
  args.down = static_cast<int>(cuda::ceil_div(gemm.m, choice.width));
  args.across = static_cast<int>(cuda::ceil_div(gemm.n, sm90::kFewRowsColumns));
  return can_be_numbered(args.down, args.across, gemm.batch.size() * choice.cluster);
}

// Calls visit(kernel, its shared memory) for the kernel that was chosen.
template <class Addend, class Visit>
Status visit_few_rows(const Choice& choice, const Visit& visit) {
  const auto one = [&]<int kTokens, int kResident>() {
    return visit(sm90::multiply_few_rows<kTokens, kResident, Addend>,
                 sm90::FewRowsShape<kTokens, kResident, Addend>::kSharedBytes);
  };
  switch (choice.width) {
    case 16:
      return one.template operator()<16, 2>();
    case 32:
      return one.template operator()<32, 2>();
    case 64:
      return one.template operator()<64, 2>();
    default:
      return choice.resident == 2 ? one.template operator()<128, 2>()
                                  : one.template operator()<128, 1>();
  }
}

struct Preload {
  template <class Kernel>
  Status operator()(Kernel* kernel, int bytes) const {
    return cuda::preload(kernel, bytes);
  }
};
template <class Addend>
Status preload_tiles() {
  return cuda::preload(sm90::multiply_tiles<Addend>, sm90::TileShape::kSharedBytes);
}
template <class Addend>
Status preload_few_rows() {
  for (const sm90::detail::Cost& cost : sm90::detail::kCosts)
    if (cost.choice.few_rows) PLANQ_TRY(visit_few_rows<Addend>(cost.choice, Preload{}));
  return Status::success();
}

// Launches with arguments that are filled in already.
template <class Addend>
Status launch_tiles(typename Addend::TileArgs& args, const Device& device, Bound& bound) {
  args.operands.waits = sm90::Waits::Never;
  // This kernel does not begin while the one before it ends. If it did, its blocks, which each need
  // a whole multiprocessor, would start one by one, and took 30 us more at 2048 x 8192 x 8192.
  const cuda::Grid grid{.blocks = std::min<std::int64_t>(args.grid.count, device.multiprocessors),
                        .threads = dim3(sm90::kTileThreads),
                        .shared_bytes = sm90::TileShape::kSharedBytes};
  return cuda::launch(sm90::multiply_tiles<Addend>, grid, args, bound);
}
template <class Addend>
Status launch_few_rows(typename Addend::FewRowsArgs& args, const Choice& choice,
                       std::int64_t batches, Bound& bound) {
  args.operands.waits = bound.follows() ? sm90::Waits::ForInput : sm90::Waits::Never;
  cuda::Grid grid{.blocks = std::int64_t{args.down} * args.across * batches * choice.cluster,
                  .threads = dim3(sm90::kFewRowsThreads<Addend>),
                  .cluster = choice.cluster,
                  .dependent = bound.follows()};
  return visit_few_rows<Addend>(choice, [&](auto kernel, int bytes) {
    grid.shared_bytes = bytes;
    return cuda::launch(kernel, grid, args, bound);
  });
}

}  // namespace planq::linear
