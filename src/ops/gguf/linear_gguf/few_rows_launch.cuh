// From a gemm of codes and blocks to the launch of the kernel in few_rows.cuh.
#pragma once

#include <algorithm>
#include <cstdlib>

#include "core/architectures.h"
#include "ops/gguf/linear_gguf/few_rows.cuh"
#include "ops/gguf/linear_gguf/launch.h"
#include "ops/linear/sm80/operands.h"

namespace planq::linear_gguf {

template <class B, bool kAligned, int kInputs>
using FewRows = FewRowsTile<B, kAligned, kInputs, 2, 2>;

template <class Tile>
FewRowsArgs few_rows_args(const Gemm& gemm) {
  FewRowsArgs args;
  args.gemm = gemm;
  args.tiles = static_cast<std::int32_t>(cuda::ceil_div(gemm.n, Tile::kWeights));
  args.spans = static_cast<std::int32_t>(cuda::ceil_div(gemm.k, kSpan));
  args.round = Tile::items_of_round(static_cast<int>(std::min<int64_t>(gemm.m, Tile::kInputs)));
  args.span_shift = args.spans > 2 ? 2 : args.spans > 1 ? 1 : 0;
  const auto last = static_cast<int>(gemm.k - int64_t{args.spans - 1} * kSpan);
  args.last_bytes = last / Tile::B::kElements * Tile::B::kBytes;
  args.last_groups = last / kGroup;
  args.whole_spans = args.spans - (args.last_bytes == Tile::kSpanBytes ? 0 : 1);
  args.whole_tiles = static_cast<std::int32_t>(gemm.n / Tile::kWeights);
  args.has_small_stride = std::abs(gemm.weight.row_stride) <= int64_t{1} << 26;
  using linear::moves_aligned;
  args.has_input_words = gemm.input.row_stride % 8 == 0 &&
                         moves_aligned(gemm, linear::kMovedInput, gemm.input.data, 8, 2);
  args.has_scale_vectors =
      gemm.epilogue.input_scale_row % 4 == 0 &&
      moves_aligned(gemm, linear::kMovedScale, gemm.epilogue.input_scale, 16, 8);
  const int bytes = storage_bytes(gemm.output_dtype), vector = std::min(4 * bytes, 16);
  args.stores_vectors = gemm.output_row * bytes % vector == 0 &&
                        moves_aligned(gemm, linear::kMovedOutput, gemm.output, vector, 2 * bytes);
  return args;
}

template <class Tile>
Status preload_few_rows_tile() {
  return cuda::preload(multiply_few_rows<Tile>, Tile::most_shared_bytes());
}

template <class Tile>
Status launch_few_rows_tile(const Gemm& gemm, const Device& device, Bound& bound) {
  FewRowsArgs args = few_rows_args<Tile>(gemm);
  args.waits = bound.follows();
  args.blocks = static_cast<std::uint32_t>(
      std::min<int64_t>(args.tiles, int64_t{device.multiprocessors} * Tile::kBlocks));
  const int64_t gemms = gemm.batch.size();
  const int64_t most = std::max<int64_t>((int64_t{1} << 30) / args.blocks, 1);
  for (int64_t first = 0; first < gemms; first += most) {
    args.first_gemm = first;
    cuda::Grid grid;
    grid.blocks = std::min(most, gemms - first) * args.blocks;
    grid.threads = dim3(Tile::kThreads);
    grid.dependent = args.waits && has_dependent_launches(device.arch);
    grid.shared_bytes =
        Tile::shared_bytes(static_cast<int>(std::min<int64_t>(gemm.m, Tile::kInputs)));
    PLANQ_TRY(cuda::launch(multiply_few_rows<Tile>, grid, args, bound));
  }
  return Status::success();
}

template <class B, bool kAligned>
Status preload_few_rows_alike() {
  PLANQ_TRY((preload_few_rows_tile<FewRows<B, kAligned, 4>>()));
  return preload_few_rows_tile<FewRows<B, kAligned, 8>>();
}
template <class B, bool kAligned>
Status launch_few_rows_alike(const Gemm& gemm, const Device& device, Bound& bound) {
  if (gemm.m <= 4) return launch_few_rows_tile<FewRows<B, kAligned, 4>>(gemm, device, bound);
  return launch_few_rows_tile<FewRows<B, kAligned, 8>>(gemm, device, bound);
}

template <class B>
Status preload_few_rows() {
  if constexpr (kHasAligned<B>) PLANQ_TRY((preload_few_rows_alike<B, true>()));
  return preload_few_rows_alike<B, false>();
}
template <class B>
Status launch_few_rows(const Gemm& gemm, const Device& device, Bound& bound) {
  if (gemm.empty()) return Status::success();
  if constexpr (kHasAligned<B>)
    if (gemm.weight.row_stride % 16 == 0 && cuda::aligned_to(gemm.weight.data, 16))
      return launch_few_rows_alike<B, true>(gemm, device, bound);
  return launch_few_rows_alike<B, false>(gemm, device, bound);
}

#define PLANQ_FEW_ROWS(type)                                       \
  template Status preload_few_rows<gguf::Block<GgufType::type>>(); \
  template Status launch_few_rows<gguf::Block<GgufType::type>>(const Gemm&, const Device&, Bound&)

}  // namespace planq::linear_gguf
