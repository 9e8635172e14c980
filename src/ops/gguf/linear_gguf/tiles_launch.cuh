// From a gemm of codes and blocks to the launch of the kernel in tiles.cuh.
#pragma once

#include <algorithm>

#include "core/architectures.h"
#include "ops/gguf/linear_gguf/launch.h"
#include "ops/gguf/linear_gguf/tiles.cuh"
#include "ops/linear/sm80/operands.h"

namespace planq::linear_gguf {

template <class Tile>
ManyRowsArgs many_rows_args(const Gemm& gemm) {
  ManyRowsArgs args;
  args.gemm = gemm;
  args.tiles_down = static_cast<std::uint32_t>(cuda::ceil_div(gemm.m, Tile::kInputs));
  args.tiles = static_cast<std::uint32_t>(args.tiles_down * cuda::ceil_div(gemm.n, Tile::kWeights));
  args.spans = static_cast<std::int32_t>(cuda::ceil_div(gemm.k, kSpan));
  const auto last = static_cast<int>(gemm.k - int64_t{args.spans - 1} * kSpan);
  args.last_bytes = last / Tile::B::kElements * Tile::B::kBytes;
  args.last_groups = last / kGroup;
  using linear::moves_aligned;
  args.has_input_vectors = gemm.input.row_stride % 16 == 0 &&
                           moves_aligned(gemm, linear::kMovedInput, gemm.input.data, 16, 2);
  const int bytes = storage_bytes(gemm.output_dtype), vector = std::min(4 * bytes, 16);
  args.stores_vectors = gemm.output_row * bytes % vector == 0 &&
                        moves_aligned(gemm, linear::kMovedOutput, gemm.output, vector, 2 * bytes);
  return args;
}

template <class Tile>
Status preload_many_rows_tile() {
  return cuda::preload(multiply_many_rows<Tile>, Tile::kSharedBytes);
}

template <class Tile>
Status launch_many_rows_tile(const Gemm& gemm, const Device& device, Bound& bound) {
  ManyRowsArgs args = many_rows_args<Tile>(gemm);
  args.waits = bound.follows();
  const int64_t gemms = gemm.batch.size();
  const int64_t most = std::max<int64_t>((int64_t{1} << 30) / args.tiles, 1);
  for (int64_t first = 0; first < gemms; first += most) {
    args.first_gemm = first;
    cuda::Grid grid;
    grid.blocks = std::min(most, gemms - first) * args.tiles;
    grid.threads = dim3(Tile::kThreads);
    grid.dependent = args.waits && has_dependent_launches(device.arch);
    grid.shared_bytes = Tile::kSharedBytes;
    PLANQ_TRY(cuda::launch(multiply_many_rows<Tile>, grid, args, bound));
  }
  return Status::success();
}

// Fewer rows are faster by the kernel for few.
inline constexpr int64_t kLeastManyRows = 33;

// Whether the spans of the weight's rows are all aligned.
template <class B>
bool is_aligned(const Gemm& gemm) {
  return kHasAligned<B> && gemm.weight.row_stride % 16 == 0 &&
         cuda::aligned_to(gemm.weight.data, 16);
}
template <class Tile>
bool fits(const Device& device) {
  return Tile::kSharedBytes <= static_cast<int64_t>(device.shared_memory_per_block);
}

template <class B>
Status preload_many_rows(const Device& device) {
  if constexpr (kHasAligned<B>)
    if (fits<ManyRowsTile<B, true>>(device))
      PLANQ_TRY((preload_many_rows_tile<ManyRowsTile<B, true>>()));
  if (!fits<ManyRowsTile<B, false>>(device)) return Status::success();
  return preload_many_rows_tile<ManyRowsTile<B, false>>();
}
template <class B>
bool takes_many_rows(const Gemm& gemm, const Device& device) {
  if (gemm.m < kLeastManyRows) return false;
  if constexpr (kHasAligned<B>)
    if (is_aligned<B>(gemm)) return fits<ManyRowsTile<B, true>>(device);
  return fits<ManyRowsTile<B, false>>(device);
}
template <class B>
Status launch_many_rows(const Gemm& gemm, const Device& device, Bound& bound) {
  if (gemm.empty()) return Status::success();
  if constexpr (kHasAligned<B>)
    if (is_aligned<B>(gemm))
      return launch_many_rows_tile<ManyRowsTile<B, true>>(gemm, device, bound);
  return launch_many_rows_tile<ManyRowsTile<B, false>>(gemm, device, bound);
}

#define PLANQ_MANY_ROWS(type)                                                             \
  template Status preload_many_rows<gguf::Block<GgufType::type>>(const Device&);          \
  template bool takes_many_rows<gguf::Block<GgufType::type>>(const Gemm&, const Device&); \
  template Status launch_many_rows<gguf::Block<GgufType::type>>(const Gemm&, const Device&, Bound&)

}  // namespace planq::linear_gguf
