// From a gemm of codes and blocks to the launch of the kernel in tiles.cuh.
#pragma once

#include <algorithm>

#include "core/architectures.h"
#include "ops/gguf/linear_gguf/launch.h"
#include "ops/gguf/linear_gguf/tiles.cuh"
#include "ops/gguf/linear_gguf/vectors.h"

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
  args.weight_end = end_of_weight(gemm.weight.data, gemm.n, gemm.weight.row_stride,
                                  gemm.k / Tile::B::kElements * Tile::B::kBytes);
  args.has_input_vectors = has_input_vectors(gemm);
  args.stores_vectors = stores_vectors(gemm);
  return args;
}

// How TMA reads the operands. Returns false where it cannot.
template <class Tile>
bool box_args(const Gemm& gemm, const Device& device, BoxedManyRowsArgs& boxed) {
  const int64_t row_bytes = gemm.k / Tile::B::kElements * Tile::B::kBytes;
  const cuda::ByteMatrices weight = {.data = gemm.weight.data,
                                     .columns = row_bytes,
                                     .rows = gemm.n,
                                     .batches = 1,
                                     .row_stride = gemm.weight.row_stride,
                                     .batch_stride = 0};
  const cuda::ByteMatrices input = {.data = gemm.input.data,
                                    .columns = gemm.k,
                                    .rows = gemm.m,
                                    .batches = 1,
                                    .row_stride = gemm.input.row_stride,
                                    .batch_stride = 0};
  if (!has_clusters(device.arch) || gemm.batch.size() != 1 || gemm.k == 0) return false;
  boxed.rows = many_rows_args<Tile>(gemm);
  return cuda::encode_tensor_map(weight, Tile::kWeights, boxed.weight, Tile::kPitch,
                                 Tile::kBoxUnit) &&
         cuda::encode_tensor_map(input, Tile::kInputs, boxed.input, cuda::kBoxBytes, 1);
}

template <class Tile, class Args>
Status launch_many_rows_args(void (*kernel)(Args), Args& all, ManyRowsArgs& args,
                             const Device& device, Bound& bound) {
  args.follows = bound.follows();
  const int64_t gemms = args.gemm.batch.size();
  const int64_t most = std::max<int64_t>((int64_t{1} << 30) / args.tiles, 1);
  for (int64_t first = 0; first < gemms; first += most) {
    args.first_gemm = first;
    cuda::Grid grid;
    grid.blocks = std::min(most, gemms - first) * args.tiles;
    grid.threads = dim3(Tile::kThreads);
    // Behind another plan, blocks that begin early would crowd where that one's leave room first.
    grid.dependent = args.follows && has_dependent_launches(device.arch);
    grid.shared_bytes = Tile::kSharedBytes;
    PLANQ_TRY(cuda::launch(kernel, grid, all, bound));
  }
  return Status::success();
}

// Fewer rows are faster by the kernel for few.
inline constexpr int64_t kLeastManyRows = 33;

// Whether a block has the shared memory.
template <class Tile>
bool fits(const Device& device) {
  return Tile::kSharedBytes <= static_cast<int64_t>(device.shared_memory_per_block);
}

template <class B>
Status preload_many_rows(const Device& device) {
  using Boxed = ManyRowsTile<B, true>;
  using Plain = ManyRowsTile<B, false>;
  if (has_clusters(device.arch) && fits<Boxed>(device))
    PLANQ_TRY(cuda::preload(multiply_many_boxed_rows<Boxed>, Boxed::kSharedBytes));
  if (!fits<Plain>(device)) return Status::success();
  return cuda::preload(multiply_many_rows<Plain>, Plain::kSharedBytes);
}
template <class B>
bool takes_many_rows(const Gemm& gemm, const Device& device) {
  return gemm.m >= kLeastManyRows && fits<ManyRowsTile<B, false>>(device);
}
template <class B>
Status launch_many_rows(const Gemm& gemm, const Device& device, Bound& bound) {
  if (gemm.empty()) return Status::success();
  using Boxed = ManyRowsTile<B, true>;
  using Plain = ManyRowsTile<B, false>;
  BoxedManyRowsArgs boxed;
  if (fits<Boxed>(device) && box_args<Boxed>(gemm, device, boxed))
    return launch_many_rows_args<Boxed>(multiply_many_boxed_rows<Boxed>, boxed, boxed.rows, device,
                                        bound);
  ManyRowsArgs args = many_rows_args<Plain>(gemm);
  return launch_many_rows_args<Plain>(multiply_many_rows<Plain>, args, args, device, bound);
}

#define PLANQ_MANY_ROWS(type)                                                             \
  template Status preload_many_rows<gguf::Block<GgufType::type>>(const Device&);          \
  template bool takes_many_rows<gguf::Block<GgufType::type>>(const Gemm&, const Device&); \
  template Status launch_many_rows<gguf::Block<GgufType::type>>(const Gemm&, const Device&, Bound&)

}  // namespace planq::linear_gguf
