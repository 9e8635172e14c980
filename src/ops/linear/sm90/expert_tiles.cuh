// Which rows the tiles of a grouped gemm have. Offsets of experts are in memory, so a kernel of its
// own lists the tiles, before the one that multiplies.
#pragma once

#include "cuda/launch.cuh"
#include "cuda/scan.cuh"
#include "ops/linear/experts.h"

namespace planq::linear::sm90 {

// Rows of one expert, which has more of them up to `end`.
struct ExpertTile {
  std::int32_t row, end, expert;
};

struct ExpertTileArgs {
  const std::int32_t* offset;
  std::int32_t experts, rows, tokens;  // tokens: rows of a tile
  ExpertTile* tiles;
  std::int32_t* count;
  // What belongs to no expert becomes 0: rows of so many pairs of bytes, and what lies between
  // them.
  std::uint16_t* output;
  std::int64_t row_pairs, output_pitch;
};

// The largest value of the threads up to this one, for all threads of a block.
__device__ __forceinline__ std::int32_t running_max(std::int32_t value, std::int32_t* of_warps) {
  const int lane = static_cast<int>(threadIdx.x) % cuda::kWarp;
  const int warp = static_cast<int>(threadIdx.x) / cuda::kWarp;
#pragma unroll
  for (int step = 1; step < cuda::kWarp; step *= 2) {
    const std::int32_t other = __shfl_up_sync(cuda::kAllLanes, value, step);
    if (lane >= step) value = max(value, other);
  }
  if (lane == cuda::kWarp - 1) of_warps[warp] = value;
  __syncthreads();
  for (int i = 0; i < warp; ++i) value = max(value, of_warps[i]);
  return value;
}

// Rows before `first` and from `end` on.
__device__ __forceinline__ void clear_rows(const ExpertTileArgs& args, std::int32_t first,
                                           std::int32_t end) {
  for (std::int64_t row = blockIdx.x - 1; row < args.rows; row += gridDim.x - 1) {
    if (row >= first && row < end) continue;
    for (std::int64_t i = threadIdx.x; i < args.row_pairs; i += kMostExperts)
      args.output[row * args.output_pitch + i] = 0;
  }
}

// The first block lists the tiles, the others clear rows. Rows of an expert end at the largest
// offset up to its own: see Experts::rows_of.
static __global__ void __launch_bounds__(kMostExperts)
    list_expert_tiles(const __grid_constant__ ExpertTileArgs args) {
  __shared__ std::int32_t of_warps[kMostExperts / cuda::kWarp];
  __shared__ std::int32_t ends[kMostExperts + 1], firsts[kMostExperts + 1];
  const int own = static_cast<int>(threadIdx.x);
  const auto inside = [&](int i) { return min(max(args.offset[i], 0), args.rows); };
  const std::int32_t first = inside(0);
  const std::int32_t value = own < args.experts ? inside(own + 1) : 0;
  ends[own + 1] = running_max(max(value, first), of_warps);
  if (own == 0) ends[0] = first;
  __syncthreads();
  if (blockIdx.x > 0) return clear_rows(args, first, ends[args.experts]);
  const std::int32_t rows = own < args.experts ? ends[own + 1] - ends[own] : 0;
  const auto before = cuda::sum_block<kMostExperts>((rows + args.tokens - 1) / args.tokens);
  firsts[own] = before.before;
  if (own == 0) *args.count = before.all;
  __syncthreads();
  for (std::int32_t i = own; i < before.all; i += kMostExperts) {
    // The last expert whose tiles begin at i or before has it: those without rows begin where the
    // next one does.
    int low = 0, high = args.experts;
    while (high - low > 1) {
      const int middle = (low + high) / 2;
      (firsts[middle] <= i ? low : high) = middle;
    }
    args.tiles[i] = {ends[low] + (i - firsts[low]) * args.tokens, ends[low + 1], low};
  }
}

// Tiles of so many rows, at most: each expert may begin one.
inline std::int64_t most_expert_tiles(std::int64_t rows, std::int64_t experts, int tokens) {
  return rows / tokens + std::min(rows, experts);
}

}  // namespace planq::linear::sm90
