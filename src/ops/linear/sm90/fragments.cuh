// Which rows of a wgmma tile a thread holds sums of, and the scales of these rows.
#pragma once

#include <cstdint>

#include "cuda/wgmma.cuh"
#include "ops/linear/sm90/epilogue.cuh"

namespace planq::linear::sm90 {

inline constexpr int kWarpRows = 16;  // of a group's 64

// The row whose scale, zero point and sum this lane keeps for its warp, counted from the warp's
// first row: row lane % 16 of wgmma tile lane / 16.
__device__ __forceinline__ int own_row(int lane) {
  return lane % kWarpRows + lane / kWarpRows * cuda::kWgmmaRows;
}

// Row number r of those that a thread holds sums of: two in each wgmma tile. `m`: the warp's first
// row. Rows that do not exist are the last one.
__device__ __forceinline__ std::int64_t fragment_row(std::int64_t m, int r, std::int64_t rows) {
  m += r / 2 * cuda::kWgmmaRows + r % 2 * 8 + static_cast<int>(threadIdx.x) % cuda::kWarp / 4;
  return min(m, rows - 1);
}

// The scales of these rows.
template <int kTiles>
__device__ __forceinline__ void read_scales(float (&scales)[2 * kTiles], const Outputs& outputs,
                                            int batch, std::int64_t m) {
  const Epilogue& e = outputs.epilogue;
  with_float(e.scale_dtype, [&]<class T>(T) {
    const T* from = static_cast<const T*>(e.input_scale) + batch * outputs.scale_batch;
    T held[2 * kTiles];
#pragma unroll
    for (int r = 0; r < 2 * kTiles; ++r)
      held[r] = from[fragment_row(m, r, outputs.rows) * e.input_scale_row];
#pragma unroll
    for (int r = 0; r < 2 * kTiles; ++r) scales[r] = static_cast<float>(math::widen(held[r]));
  });
}
// Makes sums float32 and multiplies them by the scales of their rows. They stay in the registers of
// integers.
template <int kTiles, int kCount>
__device__ __forceinline__ void scale_rows(int (&sums)[kTiles][kCount],
                                           const float (&scales)[2 * kTiles]) {
#pragma unroll
  for (int r = 0; r < 2 * kTiles; ++r)
#pragma unroll
    for (int j = 0; j < kCount / 4; ++j)
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        int& own = sums[r / 2][4 * j + 2 * (r % 2) + i];
        own = __float_as_int(static_cast<float>(own) * scales[r]);
      }
}

}  // namespace planq::linear::sm90
