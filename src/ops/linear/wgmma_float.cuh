// Products of floating numbers of 8 or 16 bits on the tensor cores of sm_90a, in the order that
// Accumulation::TensorSm90 names: terms in slices of 128, each a chain of steps from +0, added up
// in float32 one after another. The kernel is that of tiles in wgmma.cuh but for two things: both
// groups of warps share a tile, 64 of its rows each; and a slice has registers of its own, so that
// one is added while the next is multiplied.
#pragma once

#include "ops/linear/wgmma_slices.cuh"

namespace planq::linear::wgmma {

struct FloatTileArgs : TileArgs {
  std::int64_t weight_scale_row;  // where scales are those of blocks: see Product
};

using TileSlice = Slice<kTileColumns>;

// How slices of 64 rows and the columns of a block meet the sum: a thread's belong to two rows.
class BlockSlices {
 public:
  struct Own {
    float of_row[2];
  };

  // `m`: the first row of the warp's.
  __device__ __forceinline__ BlockSlices(const FloatTileArgs& args, const TilePlace& place,
                                         std::int64_t m) {
    static_assert(kTileColumns == kBlockColumns);
    const Outputs& outputs = args.outputs;
    const Epilogue& e = outputs.epilogue;
    const float* first =
        static_cast<const float*>(e.input_scale) + place.batch * outputs.scale_batch;
#pragma unroll
    for (int r = 0; r < 2; ++r)
      input_[r] = first + fragment_row(m, r, outputs.rows) * e.input_scale_row;
    weight_ = static_cast<const float*>(e.weight_scale) + place.across * args.weight_scale_row;
  }

  __device__ __forceinline__ Own of(int slice) const {
    const float of_weight = weight_[slice];
    return {{input_[0][slice] * of_weight, input_[1][slice] * of_weight}};
  }
  __device__ __forceinline__ void add(TileSlice& total, const TileSlice& slice,
                                      const Own& own) const {
#pragma unroll
    for (int i = 0; i < kTileColumns / 2; ++i)
      total[i] = math::fused(slice[i], own.of_row[i / 2 % 2], total[i]);
  }

 private:
  const float* input_[2];
  const float* weight_;
};

// A tile's sums under the scales of their rows, where there are any, in the registers where they
// are.
__device__ __forceinline__ void scale_rows(TileSlice& total, const Outputs& outputs, int batch,
                                           std::int64_t m) {
  const Epilogue& e = outputs.epilogue;
  if (!e.input_scale) return;
  const float* from = static_cast<const float*>(e.input_scale) + batch * outputs.scale_batch;
  float scales[2];
#pragma unroll
  for (int r = 0; r < 2; ++r)
    scales[r] = from[fragment_row(m, r, outputs.rows) * e.input_scale_row];
#pragma unroll
  for (int i = 0; i < kTileColumns / 2; ++i) total[i] = total[i] * scales[i / 2 % 2];
}

template <class A, class B, Scales kScales>
__device__ __forceinline__ void multiply_slices(const FloatTileArgs& args,
                                                const TileShape::Stages& ring,
                                                std::uint8_t* passes) {
  using Sums = SliceSums<A, B, TileShape::Stages, kTileColumns>;
  const int group = cuda::uniform(static_cast<int>(threadIdx.x) / kGroupThreads - 1);
  const int warp = threadIdx.x / cuda::kWarp % kGroupWarps, lane = threadIdx.x % cuda::kWarp;
  int* pass = reinterpret_cast<int*>(passes + group * TileShape::kPassBytes) + warp * kPassSums;
  const int slices = args.factors.k_boxes / Sums::kBoxes;
  Sums sums(ring, group * cuda::kProductRows);
#pragma unroll 1
  for (TileTurns turns(args, 0, 1); turns.has_tile(); turns.advance()) {
    const TilePlace place = turns.place();
    const std::int64_t m =
        std::int64_t{place.down} * kTileRows + group * cuda::kProductRows + warp * kWarpRows;
    const std::int64_t n = std::int64_t{place.across} * kTileColumns;
    touch_columns<kScales>(args.outputs.epilogue, min(n + 4 * lane, args.outputs.columns - 1));
    TileSlice total;
    if constexpr (kScales == Scales::OfBlocks)
      sums.sum(total, slices, BlockSlices(args, place, m));
    else
      sums.sum(total, slices, PlainSlices{});
    if constexpr (kScales == Scales::OfRowsAndColumns)
      scale_rows(total, args.outputs, place.batch, m);
    int finished[1][kTileColumns / 2];
#pragma unroll
    for (int i = 0; i < kTileColumns / 2; ++i) finished[0][i] = __float_as_int(total[i]);
    finish_sums(ScaledOutputs<float, kSumsAre<kScales>>(args.outputs, place.batch), pass, finished,
                args.outputs.rows, m, n);
  }
}

// A grid of any number of blocks; block i computes tiles i, i + blocks, ...
template <class A, class B, Scales kScales>
__global__ void __launch_bounds__(kTileThreads, 1)
    multiply_float_tiles(const __grid_constant__ FloatTileArgs args) {
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
    multiply_slices<A, B, kScales>(args, ring, shared + TileShape::kPassesAt);
  }
}

}  // namespace planq::linear::wgmma
