// The epilogue's staging: a warp's sums go from registers through shared memory, eight rows at a
// time, so that each lane gets four neighbouring columns, which it stores together.
#pragma once

#include <cstdint>

#include "ops/linear/sm90/epilogue.cuh"
#include "ops/linear/sm90/fragments.cuh"

namespace planq::linear::sm90 {

inline constexpr int kTileColumns = 128;
// Padded, so that neither writes nor reads of a warp meet a bank twice.
inline constexpr int kStagingRows = 8, kStagingPitch = kTileColumns + 8;
inline constexpr int kStagingSums = kStagingRows * kStagingPitch;

// Writes eight rows of a warp's sums to shared memory: the upper or the lower eight of a wgmma
// tile.
template <int kLower>
__device__ __forceinline__ void stage_sums(int* staging, const int (&sums)[kTileColumns / 2]) {
  const int lane = threadIdx.x % cuda::kWarp;
  int* to = staging + lane / 4 * kStagingPitch + lane % 4 * 2;
#pragma unroll
  for (int j = 0; j < kTileColumns / 8; ++j)
    *reinterpret_cast<int2*>(to + 8 * j) =
        make_int2(sums[4 * j + 2 * kLower], sums[4 * j + 2 * kLower + 1]);
}

// Writes part number `part` of a warp's sums, eight rows. The loop over parts is not unrolled, but
// registers need constant indices.
template <int kTiles>
__device__ __forceinline__ void stage_part(int* staging,
                                           const int (&sums)[kTiles][kTileColumns / 2], int part) {
#pragma unroll
  for (int tile = 0; tile < kTiles; ++tile) {
    if (part == 2 * tile) stage_sums<0>(staging, sums[tile]);
    if (part == 2 * tile + 1) stage_sums<1>(staging, sums[tile]);
  }
}

// Finishes a warp's sums, from row m of the output on. `n`: the first column of the tile.
template <int kTiles, class Out>
__device__ __forceinline__ void finish_sums(const Out& out, int* staging,
                                            const int (&sums)[kTiles][kTileColumns / 2],
                                            std::int64_t rows, std::int64_t m, std::int64_t n) {
  const int lane = threadIdx.x % cuda::kWarp;
  n += 4 * lane;
  const auto own = out.row(m + own_row(lane));
  const auto columns = out.columns(n);
#pragma unroll 1
  for (int part = 0; part < 2 * kTiles; ++part) {
    const int tile = part / 2, lower = part % 2;
    __syncwarp();  // every lane has read the part before
    stage_part(staging, sums, part);
    __syncwarp();
    const std::int64_t top = m + tile * cuda::kWgmmaRows + lower * kStagingRows;
    const auto count = static_cast<int>(min(rows - top, std::int64_t{kStagingRows}));
    out.finish({staging + 4 * lane, kStagingPitch, count, tile * kWarpRows + lower * kStagingRows,
                top, 1, n},
               own, columns);
  }
}

}  // namespace planq::linear::sm90
