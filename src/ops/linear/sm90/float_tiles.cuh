// Gemms of floating numbers of 8 or 16 bits with many rows in both operands, on the tensor cores of
// sm_90a, in the order of Accumulation::TensorSm90: see slices.cuh.
//
// The kernel is built like that of int8_tiles.cuh, with two differences. Both groups share a tile,
// of which each has half of the rows. And a slice of 128 terms has registers of its own, beside the
// total.
#pragma once

#include "ops/linear/sm90/slices.cuh"
#include "ops/linear/sm90/tiles.cuh"

namespace planq::linear::sm90 {

struct FloatTileArgs : TileArgs {
  std::int64_t weight_scale_row;  // with scales of blocks: see Gemm
};

using TileSlice = Slice<kTileColumns>;

// kTiles: wgmma tiles, of 64 rows, for each group. With two, the weight in shared memory serves
// twice the rows, but registers are left for only one slice (TallSliceSums). That was slower for
// 8-bit numbers at 8192^3.
template <int kTiles_>
struct FloatTileShape : TileShapeOf<2 * kTiles_ * cuda::kWgmmaRows, kTiles_ == 1 ? 6 : 4> {
  static constexpr int kTiles = kTiles_;
  // Registers of a thread that copies, and of one that multiplies.
  static constexpr int kCopyRegisters = kTiles == 1 ? 40 : 24;
  static constexpr int kGroupRegisters = kTiles == 1 ? 232 : 240;

  template <class A, class B, class Ring>
  using Sums = std::conditional_t<kTiles == 1, SliceSums<A, B, Ring, kTileColumns>,
                                  TallSliceSums<A, B, Ring, kTileColumns, kTiles>>;
};
using SmallTiles = FloatTileShape<1>;
using TallTiles = FloatTileShape<2>;

// Adds slices under the scales of their blocks to the total. A thread has sums of two rows.
class BlockSlices {
 public:
  struct Own {
    float of_row[2];
  };

  // `m`: the warp's first row.
  template <class Place>
  __device__ __forceinline__ BlockSlices(const FloatTileArgs& args, const Place& place,
                                         std::int64_t m) {
    static_assert(kTileColumns == kBlockColumns);
    const Outputs& outputs = args.outputs;
    const Epilogue& e = outputs.epilogue;
    const float* first =
        static_cast<const float*>(e.input_scale) + place.batch * outputs.scale_batch;
#pragma unroll
    for (int r = 0; r < 2; ++r)
      input_[r] = first + fragment_row(m, r, outputs.rows) * e.input_scale_row;
    weight_ = static_cast<const float*>(e.weight_scale) + place.batch * outputs.weight_scale_batch +
              place.across * args.weight_scale_row;
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

// Multiplies a total by the scales of its rows, if there are any, in registers.
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

template <class A, class B, Scales kScales, class Shape, class Args>
__device__ __forceinline__ void multiply_slices(const Args& args,
                                                const typename Shape::Stages& ring,
                                                std::uint8_t* shared) {
  using Sums = typename Shape::template Sums<A, B, typename Shape::Stages>;
  constexpr int kTiles = Shape::kTiles, kGroupRows = kTiles * cuda::kWgmmaRows;
  const int group = cuda::uniform(static_cast<int>(threadIdx.x) / kGroupThreads - 1);
  const int warp = threadIdx.x / cuda::kWarp % kGroupWarps, lane = threadIdx.x % cuda::kWarp;
  int* staging =
      reinterpret_cast<int*>(shared + group * Shape::kStagingBytes) + warp * kStagingSums;
  const int slices = args.operands.k_blocks / Sums::Slices::kKBlocks;
  Sums sums(ring, group * kGroupRows);
#pragma unroll 1
  for (auto schedule = schedule_of(args, 0, 1); schedule.has_tile(); schedule.advance()) {
    const auto place = schedule.place();
    const std::int64_t m =
        std::int64_t{place.first_row(Shape::kRows)} + group * kGroupRows + warp * kWarpRows;
    const std::int64_t n = std::int64_t{place.across} * kTileColumns;
    touch_columns<kScales>(args.outputs.epilogue, min(n + 4 * lane, args.outputs.columns - 1));
    TileSlice total[kTiles];
    const auto sum = [&](const auto& join) {
      if constexpr (kTiles == 1)
        sums.sum(total[0], slices, join);
      else
        sums.sum(total, slices, join);
    };
    if constexpr (kScales == Scales::OfBlocks)
      sum(BlockSlices(args, place, m));
    else
      sum(PlainSlices{});
    int finished[kTiles][kTileColumns / 2];
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
      if constexpr (kScales == Scales::OfRowsAndColumns)
        scale_rows(total[tile], args.outputs, place.batch, m + tile * cuda::kWgmmaRows);
#pragma unroll
      for (int i = 0; i < kTileColumns / 2; ++i) finished[tile][i] = __float_as_int(total[tile][i]);
    }
    finish_sums(ScaledOutputs<float, kSumsAre<kScales>>(args.outputs, place.batch), staging,
                finished, place.end_row(args.outputs.rows), m, n);
  }
}

// The grid may have any number of blocks. Block i computes tiles i, i + blocks, and so on.
template <class A, class B, Scales kScales, class Shape, class Args = FloatTileArgs>
__global__ void __launch_bounds__(kTileThreads, 1)
    multiply_float_tiles(const __grid_constant__ Args args) {
  extern __shared__ __align__(1024) std::uint8_t shared[];
  cuda::Barrier* barriers = reinterpret_cast<cuda::Barrier*>(shared + Shape::kBarriersAt);
  const typename Shape::Stages ring{shared, barriers, barriers + Shape::kStages};
  if (threadIdx.x == 0) {
    if (cuda::shared_address(shared) % 1024 != 0) __trap();
    ring.open(2 * kGroupWarps);
    cuda::prefetch_map(args.operands.first);
    cuda::prefetch_map(args.operands.second);
  }
  wait_for_input(args.operands);
  __syncthreads();
  if (threadIdx.x < kGroupThreads) {
    cuda::lower_registers<Shape::kCopyRegisters>();
    if (threadIdx.x == 0) copy_tiles<Shape, A, B>(args, ring);
  } else {
    cuda::raise_registers<Shape::kGroupRegisters>();
    multiply_slices<A, B, kScales, Shape>(args, ring, shared + Shape::kStagingAt);
  }
}

}  // namespace planq::linear::sm90
