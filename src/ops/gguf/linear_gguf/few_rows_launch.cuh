// From a gemm of codes and blocks to the launch of the kernel in few_rows.cuh.
#pragma once

#include <algorithm>
#include <cstdlib>

#include "core/architectures.h"
#include "ops/gguf/linear_gguf/few_rows.cuh"
#include "ops/gguf/linear_gguf/launch.h"
#include "ops/gguf/linear_gguf/vectors.h"

namespace planq::linear_gguf {

// How blocks of `tiles` tiles are divided, with 2^warp_shift warps of `stages` stages each, as far
// as `bytes` of shared memory go. Of no tiles, where they do not.
template <class Tile>
FewRowsShape few_rows_shape(FewRowsShape shape, int rows, int tiles, int spans, int64_t bytes) {
  const int warps = 1 << shape.warp_shift;
  // A word behind the last stage may be read.
  shape.scratch = warps * shape.stages * shape.pitch * Tile::kStageRows + 64;
  shape.slots = shape.scratch + warps * Tile::kScratchBytes;
  shape.sums = shape.slots + warps * rows * Tile::kRecordBytes;
  // A multiple of the warps, so that all have as many items, but where there are not so many.
  shape.spans = std::clamp(spans, 1, warps);
  const int64_t each = int64_t{4} * Tile::kRounds * shape.spans * Tile::sum_floats(rows);
  // TMA writes boxes to multiples of 128 bytes.
  const int64_t fit = std::max<int64_t>((bytes - 128 - shape.sums) / each, 0);
  const int most = std::min(tiles, Tile::most_tiles(warps, rows));
  shape.tiles = static_cast<std::int32_t>(std::min<int64_t>(most, fit));
  // Not half an item, but at the end.
  if (shape.tiles > 1 && shape.tiles < tiles) shape.tiles -= shape.tiles % Tile::kTiles;
  shape.round_bytes = static_cast<std::int32_t>(each / Tile::kRounds * shape.tiles);
  shape.bytes = shape.sums + Tile::kRounds * shape.round_bytes + 128;
  return shape;
}

// Many stages hide more of the memory's latency, and many tiles of a round the costs of a span of
// the input, and of a round.
template <class Tile>
FewRowsShape few_rows_shape(int pitch, int rows, int tiles, int spans, int64_t bytes) {
  const auto shape = [&](int warp_shift, int stages) {
    return few_rows_shape<Tile>({.warp_shift = warp_shift, .stages = stages, .pitch = pitch}, rows,
                                tiles, spans, bytes);
  };
  for (const int warp_shift : {4, 3, 2, 1}) {
    const FewRowsShape least = shape(warp_shift, 2);
    if (least.tiles == 0) continue;
    for (const int stages : {4, 3}) {
      const FewRowsShape more = shape(warp_shift, stages);
      if (more.tiles >= std::min<int>(least.tiles, 4)) return more;
    }
    return least;
  }
  return {};
}

// Beside what a block has of it for other variables.
inline int64_t few_rows_bytes(const Device& device) {
  return static_cast<int64_t>(device.shared_memory_per_block) - 2048;
}

template <class Tile>
FewRowsArgs few_rows_args(const Gemm& gemm, const Device& device, int pitch) {
  FewRowsArgs args;
  args.gemm = gemm;
  args.tiles = static_cast<std::int32_t>(cuda::ceil_div(gemm.n, Tile::kWeights));
  args.spans = static_cast<std::int32_t>(cuda::ceil_div(gemm.k, kSpan));
  args.rows = static_cast<std::int32_t>(std::min<int64_t>(gemm.m, Tile::kInputs));
  args.blocks = static_cast<std::uint32_t>(std::min<int64_t>(args.tiles, device.multiprocessors));
  const auto tiles = static_cast<int>(cuda::ceil_div(args.tiles, static_cast<int>(args.blocks)));
  args.shape = few_rows_shape<Tile>(pitch, args.rows, tiles, args.spans, few_rows_bytes(device));
  const auto last = static_cast<int>(gemm.k - int64_t{args.spans - 1} * kSpan);
  args.last_bytes = last / Tile::B::kElements * Tile::B::kBytes;
  args.last_groups = last / kGroup;
  args.whole_spans = args.spans - (args.last_bytes == Tile::kSpanBytes ? 0 : 1);
  args.whole_tiles = static_cast<std::int32_t>(gemm.n / Tile::kWeights);
  const int64_t step = std::abs(gemm.weight.row_stride);
  args.has_usual_stride = step >= 16 && step <= int64_t{1} << 26;
  args.weight_end = end_of_weight(gemm.weight.data, gemm.n, gemm.weight.row_stride,
                                  gemm.k / Tile::B::kElements * Tile::B::kBytes);
  args.has_input_vectors = has_input_vectors(gemm);
  args.stores_vectors = stores_vectors(gemm);
  return args;
}

// How TMA reads the weight: see BoxCopies. Returns false where it cannot.
template <class Tile>
bool box_args(const Gemm& gemm, const Device& device, BoxedFewRowsArgs& boxed) {
  const int64_t stride = gemm.weight.row_stride;
  const auto past = static_cast<int>(reinterpret_cast<std::uintptr_t>(gemm.weight.data) % 16);
  const int shift = stride % 16 == 0 ? 0 : 1;
  const int64_t rows = int64_t{1} << shift;  // of the weight in one of the matrix
  const int unit = Tile::kAligned ? 8 : Tile::kBoxUnit;
  if (!has_clusters(device.arch) || stride <= 0 || stride * rows % 16 != 0 || gemm.k == 0 ||
      gemm.n % rows != 0 || past % unit != 0 || stride % unit != 0)
    return false;
  const int most_past = !Tile::kAligned ? 15 : past == 0 && shift == 0 ? 0 : 8;
  const int pitch = Tile::pitch_of(most_past);
  boxed.rows = few_rows_args<Tile>(gemm, device, pitch);
  boxed.rows.phase_shift = shift;
  boxed.rows.first_column = past / Tile::kBoxUnit;
  const int64_t row_bytes = gemm.k / Tile::B::kElements * Tile::B::kBytes;
  const cuda::ByteMatrices matrix = {.data = gemm.weight.data - past,
                                     .columns = past + stride * (rows - 1) + row_bytes,
                                     .rows = gemm.n / rows,
                                     .batches = 1,
                                     .row_stride = stride * rows,
                                     .batch_stride = 0};
  return boxed.rows.shape.tiles > 0 && cuda::encode_tensor_map(matrix, Tile::kWeights >> shift,
                                                               boxed.weight, pitch, Tile::kBoxUnit);
}

template <class Args>
Status launch_few_rows_args(void (*kernel)(Args), Args& all, FewRowsArgs& args,
                            const Device& device, Bound& bound) {
  args.follows = bound.follows();
  const int64_t gemms = args.gemm.batch.size();
  const int64_t most = std::max<int64_t>((int64_t{1} << 30) / args.blocks, 1);
  for (int64_t first = 0; first < gemms; first += most) {
    args.first_gemm = first;
    cuda::Grid grid;
    grid.blocks = std::min(most, gemms - first) * args.blocks;
    grid.threads = dim3(static_cast<unsigned>(cuda::kWarp << args.shape.warp_shift));
    grid.dependent = has_dependent_launches(device.arch);
    grid.shared_bytes = args.shape.bytes;
    PLANQ_TRY(cuda::launch(kernel, grid, all, bound));
  }
  return Status::success();
}

template <class B, int kInputs>
Status launch_some_rows(const Gemm& gemm, const Device& device, Bound& bound) {
  using Boxed = FewRowsTile<B, true, kInputs>;
  BoxedFewRowsArgs boxed;
  if (box_args<Boxed>(gemm, device, boxed))
    return launch_few_rows_args(multiply_few_boxed_rows<Boxed>, boxed, boxed.rows, device, bound);
  using Plain = FewRowsTile<B, false, kInputs>;
  FewRowsArgs args = few_rows_args<Plain>(gemm, device, Plain::kLeastPitch);
  return launch_few_rows_args(multiply_few_rows<Plain>, args, args, device, bound);
}
template <class B, int kInputs>
Status preload_some_rows(const Device& device) {
  const auto bytes = static_cast<int>(few_rows_bytes(device));
  if (has_clusters(device.arch))
    PLANQ_TRY(cuda::preload(multiply_few_boxed_rows<FewRowsTile<B, true, kInputs>>, bytes));
  return cuda::preload(multiply_few_rows<FewRowsTile<B, false, kInputs>>, bytes);
}

template <class B>
Status preload_few_rows(const Device& device) {
  PLANQ_TRY((preload_some_rows<B, 1>(device)));
  return preload_some_rows<B, 8>(device);
}
template <class B>
Status launch_few_rows(const Gemm& gemm, const Device& device, Bound& bound) {
  if (gemm.empty()) return Status::success();
  return gemm.m == 1 ? launch_some_rows<B, 1>(gemm, device, bound)
                     : launch_some_rows<B, 8>(gemm, device, bound);
}

#define PLANQ_FEW_ROWS(type)                                                    \
  template Status preload_few_rows<gguf::Block<GgufType::type>>(const Device&); \
  template Status launch_few_rows<gguf::Block<GgufType::type>>(const Gemm&, const Device&, Bound&)

}  // namespace planq::linear_gguf
