// Products of numbers of 16 bits on the tensor cores of sm_90a, in the order that
// Accumulation::TensorSm90 names: terms in slices of 128, each a chain of steps from +0, added up
// in float32 one after another. The kernel is that of tiles in wgmma.cuh but for two things: both
// groups of warps share a tile, 64 of its rows each; and a slice has registers of its own, so that
// one is added while the next is multiplied.
#pragma once

#include "math/tensor_core.h"
#include "ops/linear/wgmma.cuh"

namespace planq::linear::wgmma {

// Boxes of 64 terms in a slice.
inline constexpr int kSliceBoxes = math::kTensorCoreSlice * 2 / cuda::kBoxBytes;
using Slice = float[kTileColumns / 2];

// The sums of 64 rows by 128 columns over the stages of a tile, from the cursor on.
template <class T>
class SliceSums {
 public:
  using Stages = TileShape::Stages;

  // `row`: of the first factor, a multiple of 64.
  __device__ __forceinline__ SliceSums(const Stages& ring, int row)
      : ring_(ring),
        first_(cuda::factor_of(cuda::shared_address(ring.first(0)) + row * cuda::kBoxBytes)),
        second_(cuda::factor_of(cuda::shared_address(ring.second(0)))) {}

  // `slices`: at least 1.
  __device__ __forceinline__ void sum(Slice& total, Stages::Cursor& cursor, int slices) {
    Slice held[2];
#pragma unroll
    for (int i = 0; i < kTileColumns / 2; ++i) total[i] = 0;
    multiply(held[0], cursor);
    int left = slices - 1;
#pragma unroll 1
    for (; left >= 2; left -= 2) {
      pass(total, held[0], held[1], cursor);
      pass(total, held[1], held[0], cursor);
    }
    if (left == 1) {
      pass(total, held[0], held[1], cursor);
      finish(total, held[1]);
    } else {
      finish(total, held[0]);
    }
  }

 private:
  // Begins the products of a slice, once its boxes are there.
  __device__ __forceinline__ void multiply(Slice& slice, Stages::Cursor& cursor) {
    int at[kSliceBoxes];
#pragma unroll
    for (int box = 0; box < kSliceBoxes; ++box) {
      ring_.full[cursor.stage].wait(cursor.parity);
      at[box] = cursor.stage * Stages::kStageBytes;
      cursor.advance();
    }
    cuda::begin_products();
#pragma unroll
    for (int box = 0; box < kSliceBoxes; ++box)
#pragma unroll
      for (int byte = 0; byte < cuda::kBoxBytes; byte += cuda::kProductDepth)
        cuda::add_step<T>(slice, cuda::advanced(first_, at[box] + byte),
                          cuda::advanced(second_, at[box] + byte), box > 0 || byte > 0);
    cuda::commit_products();
  }
  // Begins the next slice and adds the one before it.
  __device__ __forceinline__ void pass(Slice& total, Slice& done, Slice& next,
                                       Stages::Cursor& cursor) {
    multiply(next, cursor);
    cuda::wait_for_products<1>();
    add(total, done);
    release();
  }
  __device__ __forceinline__ void finish(Slice& total, Slice& last) {
    cuda::wait_for_products<0>();
    add(total, last);
    release();
  }
  static __device__ __forceinline__ void add(Slice& total, Slice& slice) {
    cuda::pin(slice);
#pragma unroll
    for (int i = 0; i < kTileColumns / 2; ++i) total[i] = total[i] + slice[i];
  }
  // Gives back the oldest stages that are still held: those of a slice.
  __device__ __forceinline__ void release() {
#pragma unroll
    for (int box = 0; box < kSliceBoxes; ++box) {
      if (threadIdx.x % cuda::kWarp == 0) ring_.empty[oldest_].arrive();
      oldest_ = oldest_ + 1 == TileShape::kStages ? 0 : oldest_ + 1;
    }
  }

  const Stages& ring_;
  std::uint64_t first_, second_;
  int oldest_ = 0;
};

template <class T>
__device__ __forceinline__ void multiply_slices(const TileArgs& args, const TileShape::Stages& ring,
                                                std::uint8_t* passes) {
  const int group = cuda::uniform(static_cast<int>(threadIdx.x) / kGroupThreads - 1);
  const int warp = threadIdx.x / cuda::kWarp % kGroupWarps, lane = threadIdx.x % cuda::kWarp;
  int* pass = reinterpret_cast<int*>(passes + group * TileShape::kPassBytes) + warp * kPassSums;
  SliceSums<T> slices(ring, group * cuda::kProductRows);
  TileShape::Stages::Cursor cursor;
#pragma unroll 1
  for (TileTurns turns(args, 0, 1); turns.has_tile(); turns.advance()) {
    const TilePlace place = turns.place();
    const std::int64_t m =
        std::int64_t{place.down} * kTileRows + group * cuda::kProductRows + warp * kWarpRows;
    const std::int64_t n = std::int64_t{place.across} * kTileColumns;
    touch_element(args.outputs.epilogue.bias, min(n + 4 * lane, args.outputs.columns - 1),
                  args.outputs.epilogue.bias_dtype);
    Slice total;
    slices.sum(total, cursor, args.factors.k_boxes / kSliceBoxes);
    int sums[1][kTileColumns / 2];
#pragma unroll
    for (int i = 0; i < kTileColumns / 2; ++i) sums[0][i] = __float_as_int(total[i]);
    finish_sums(ScaledOutputs<float, SumsAre::Products>(args.outputs, place.batch), pass, sums,
                args.outputs.rows, m, n);
  }
}

// A grid of any number of blocks; block i computes tiles i, i + blocks, ...
template <class T>
__global__ void __launch_bounds__(kTileThreads, 1)
    multiply_float_tiles(const __grid_constant__ TileArgs args) {
  extern __shared__ __align__(1024) std::uint8_t shared[];
  cuda::Barrier* barriers = reinterpret_cast<cuda::Barrier*>(shared + TileShape::kBarriersAt);
  const TileShape::Stages ring{shared, barriers, barriers + TileShape::kStages};
  if (threadIdx.x == 0) {
    if (cuda::shared_address(shared) % 1024 != 0) __trap();
    ring.open(2 * kGroupWarps);
    cuda::prefetch_map(args.factors.first);
    cuda::prefetch_map(args.factors.second);
  }
  if (args.factors.waits) cuda::wait_for_previous();
  __syncthreads();
  if (threadIdx.x < kGroupThreads) {
    cuda::lower_registers<40>();
    if (threadIdx.x == 0) copy_tiles(args, ring);
  } else {
    cuda::raise_registers<232>();
    multiply_slices<T>(args, ring, shared + TileShape::kPassesAt);
  }
}

}  // namespace planq::linear::wgmma
