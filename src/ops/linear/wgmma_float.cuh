// Products of floating numbers of 8 or 16 bits on the tensor cores of sm_90a, in the order that
// Accumulation::TensorSm90 names: terms in slices of 128, each a chain of steps from +0, added up
// in float32 one after another. The kernel is that of tiles in wgmma.cuh but for two things: both
// groups of warps share a tile, 64 of its rows each; and a slice has registers of its own, so that
// one is added while the next is multiplied.
#pragma once

#include "math/tensor_core.h"
#include "ops/linear/wgmma.cuh"

namespace planq::linear::wgmma {

// What a product's sums or slices meet on their way to the outputs.
enum class Scales { None, OfRowsAndColumns, OfBlocks };

struct FloatTileArgs : TileArgs {
  std::int64_t weight_scale_row;  // where scales are those of blocks: see Product
};

using Slice = float[kTileColumns / 2];

// --- How slices meet the sum ---------------------------------------------------------------------

struct PlainSlices {
  struct Own {};
  __device__ __forceinline__ Own of(int) const { return {}; }
  static __device__ __forceinline__ void add(Slice& total, const Slice& slice, Own) {
#pragma unroll
    for (int i = 0; i < kTileColumns / 2; ++i) total[i] = total[i] + slice[i];
  }
};

// Of 64 rows and the columns of a block: a thread's sums belong to two rows.
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
  static __device__ __forceinline__ void add(Slice& total, const Slice& slice, const Own& own) {
#pragma unroll
    for (int i = 0; i < kTileColumns / 2; ++i)
      total[i] = math::fused(slice[i], own.of_row[i / 2 % 2], total[i]);
  }

 private:
  const float* input_[2];
  const float* weight_;
};

// --- Sums ----------------------------------------------------------------------------------------

// The sums of 64 rows by 128 columns over the stages of a tile, from the cursor on.
template <class A, class B>
class SliceSums {
 public:
  using Stages = TileShape::Stages;
  // Boxes along k that a slice has.
  static constexpr int kBoxes = math::kTensorCoreSlice * sizeof(A) / cuda::kBoxBytes;
  static_assert(sizeof(A) == sizeof(B));

  // `row`: of the first factor, a multiple of 64.
  __device__ __forceinline__ SliceSums(const Stages& ring, int row)
      : ring_(ring),
        first_(cuda::factor_of(cuda::shared_address(ring.first(0)) + row * cuda::kBoxBytes)),
        second_(cuda::factor_of(cuda::shared_address(ring.second(0)))) {}

  // `slices`: at least 1.
  template <class Join>
  __device__ __forceinline__ void sum(Slice& total, Stages::Cursor& cursor, int slices,
                                      const Join& join) {
    Held<Join> held[2];
#pragma unroll
    for (int i = 0; i < kTileColumns / 2; ++i) total[i] = 0;
    multiply(held[0], cursor, join, 0);
    int slice = 1;
#pragma unroll 1
    for (; slice + 1 < slices; slice += 2) {
      pass(total, held[0], held[1], cursor, join, slice);
      pass(total, held[1], held[0], cursor, join, slice + 1);
    }
    if (slice < slices) {
      pass(total, held[0], held[1], cursor, join, slice);
      finish<Join>(total, held[1]);
    } else {
      finish<Join>(total, held[0]);
    }
  }

 private:
  template <class Join>
  struct Held {
    Slice sums;
    typename Join::Own own;
  };

  // Begins the products of a slice, once its boxes are there.
  template <class Join>
  __device__ __forceinline__ void multiply(Held<Join>& held, Stages::Cursor& cursor,
                                           const Join& join, int slice) {
    held.own = join.of(slice);
    int at[kBoxes];
#pragma unroll
    for (int box = 0; box < kBoxes; ++box) {
      ring_.full[cursor.stage].wait(cursor.parity);
      at[box] = cursor.stage * Stages::kStageBytes;
      cursor.advance();
    }
    cuda::begin_products();
#pragma unroll
    for (int box = 0; box < kBoxes; ++box)
#pragma unroll
      for (int byte = 0; byte < cuda::kBoxBytes; byte += cuda::kProductDepth)
        cuda::add_step<A, B>(held.sums, cuda::advanced(first_, at[box] + byte),
                             cuda::advanced(second_, at[box] + byte), box > 0 || byte > 0);
    cuda::commit_products();
  }
  // Begins the next slice and adds the one before it.
  template <class Join>
  __device__ __forceinline__ void pass(Slice& total, Held<Join>& done, Held<Join>& next,
                                       Stages::Cursor& cursor, const Join& join, int slice) {
    multiply(next, cursor, join, slice);
    cuda::wait_for_products<1>();
    cuda::pin(done.sums);
    Join::add(total, done.sums, done.own);
    release();
  }
  template <class Join>
  __device__ __forceinline__ void finish(Slice& total, Held<Join>& last) {
    cuda::wait_for_products<0>();
    cuda::pin(last.sums);
    Join::add(total, last.sums, last.own);
    release();
  }
  // Gives back the oldest stages that are still held: those of a slice.
  __device__ __forceinline__ void release() {
#pragma unroll
    for (int box = 0; box < kBoxes; ++box) {
      if (threadIdx.x % cuda::kWarp == 0) ring_.empty[oldest_].arrive();
      oldest_ = oldest_ + 1 == TileShape::kStages ? 0 : oldest_ + 1;
    }
  }

  const Stages& ring_;
  std::uint64_t first_, second_;
  int oldest_ = 0;
};

// A tile's sums under the scales of their rows, where there are any, in the registers where they
// are.
__device__ __forceinline__ void scale_rows(Slice& total, const Outputs& outputs, int batch,
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

template <Scales kScales>
__device__ __forceinline__ void touch_columns(const Epilogue& e, std::int64_t n) {
  touch_element(e.bias, n, e.bias_dtype);
  if constexpr (kScales == Scales::OfRowsAndColumns)
    touch_element(e.weight_scale, n * e.weight_step, e.scale_dtype);
}

template <class A, class B, Scales kScales>
__device__ __forceinline__ void multiply_slices(const FloatTileArgs& args,
                                                const TileShape::Stages& ring,
                                                std::uint8_t* passes) {
  using Sums = SliceSums<A, B>;
  constexpr SumsAre kSums =
      kScales == Scales::OfRowsAndColumns ? SumsAre::Scaled : SumsAre::Products;
  const int group = cuda::uniform(static_cast<int>(threadIdx.x) / kGroupThreads - 1);
  const int warp = threadIdx.x / cuda::kWarp % kGroupWarps, lane = threadIdx.x % cuda::kWarp;
  int* pass = reinterpret_cast<int*>(passes + group * TileShape::kPassBytes) + warp * kPassSums;
  const int slices = args.factors.k_boxes / Sums::kBoxes;
  Sums sums(ring, group * cuda::kProductRows);
  TileShape::Stages::Cursor cursor;
#pragma unroll 1
  for (TileTurns turns(args, 0, 1); turns.has_tile(); turns.advance()) {
    const TilePlace place = turns.place();
    const std::int64_t m =
        std::int64_t{place.down} * kTileRows + group * cuda::kProductRows + warp * kWarpRows;
    const std::int64_t n = std::int64_t{place.across} * kTileColumns;
    touch_columns<kScales>(args.outputs.epilogue, min(n + 4 * lane, args.outputs.columns - 1));
    Slice total;
    if constexpr (kScales == Scales::OfBlocks)
      sums.sum(total, cursor, slices, BlockSlices(args, place, m));
    else
      sums.sum(total, cursor, slices, PlainSlices{});
    if constexpr (kScales == Scales::OfRowsAndColumns)
      scale_rows(total, args.outputs, place.batch, m);
    int finished[1][kTileColumns / 2];
#pragma unroll
    for (int i = 0; i < kTileColumns / 2; ++i) finished[0][i] = __float_as_int(total[i]);
    finish_sums(ScaledOutputs<float, kSums>(args.outputs, place.batch), pass, finished,
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
