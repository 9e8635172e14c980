// Accumulation::GroupsSm90 for many rows of input, on wgmma. The numbers of a panel of the weight
// are in memory, without their scales (weight_only/panels.cuh), and so are its scales, run by run.
// Any weight that is codes can be made such a panel.
//
// The kernel is built like that of float_tiles.cuh: two groups share a tile, of which each has half
// of the rows. A thread has three sets of sums: of the run that is multiplied, of the span, and of
// the spans before. There is no room for a second run, so nothing of a group is multiplied while a
// run is scaled; the other group's wgmma fills the tensor cores. (Groups that took turns by
// barriers were slower.)
#pragma once

#include "ops/linear/sm90/slices.cuh"
#include "ops/linear/sm90/tiles.cuh"

namespace planq::linear::sm90::groups::panels {

struct Args : TileArgs {
  const float* scales;       // of a run: one for each column of the panel, and of whole tiles
  std::int64_t scale_pitch;  // from a run to the next
  std::int32_t span_blocks;  // k blocks of a span
};

// kRun: terms of a run. A k block is 64 terms, a stage. Scales of the runs that end in it come with
// it.
template <class T_, int kRun_>
struct Shape : TileShapeOf<kTileRows, 5> {
  using T = T_;
  static constexpr int kRun = kRun_;
  static constexpr int kBlockTerms = cuda::kBoxBytes / static_cast<int>(sizeof(T));
  static constexpr int kParts = std::max(kBlockTerms / kRun, 1);  // of a k block
  static constexpr int kSteps = cuda::kBoxBytes / cuda::kWgmmaBytes / kParts;
  static constexpr int kRunBlocks = std::max(kRun / kBlockTerms, 1);
  static constexpr int kScaleBytes = kTileColumns * static_cast<int>(sizeof(float));
  static constexpr int kScalesAt =
      (TileShapeOf<kTileRows, 5>::kSharedBytes + 127) / 128 * 128;  // kParts for each stage
  static constexpr int kSharedBytes = kScalesAt + 5 * kParts * kScaleBytes;
  static_assert(kSharedBytes <= 227 * 1024);
};

// What the copying thread does, for all tiles of the block.
template <class S>
__device__ __forceinline__ void copy_blocks(const Args& args, const typename S::Stages& ring,
                                            std::uint8_t* scales) {
  const OperandMaps& operands = args.operands;
  typename S::Stages::Cursor cursor;
#pragma unroll 1
  for (TileSchedule schedule(args.grid, 0, 1); schedule.has_tile(); schedule.advance()) {
    const TilePlace place = schedule.place();
    const int x = place.down * kTileRows, y = place.across * kTileColumns;
#pragma unroll 1
    for (int block = 0; block < operands.k_blocks; ++block) {
      ring.empty[cursor.stage].wait(cursor.parity ^ 1);
      cuda::Barrier& full = ring.full[cursor.stage];
      full.arrive_and_expect(S::Stages::kStageBytes + S::kParts * S::kScaleBytes);
      copy_rows<kTileRows, typename S::T>(ring.first(cursor.stage), operands.first, block, x,
                                          place.batch * operands.first_step, full);
      copy_rows<kTileColumns, typename S::T>(ring.second(cursor.stage), operands.second, block, y,
                                             0, full);
      const float* from = args.scales + block * S::kParts / S::kRunBlocks * args.scale_pitch + y;
#pragma unroll
      for (int part = 0; part < S::kParts; ++part)
        cuda::copy_bytes(scales + (cursor.stage * S::kParts + part) * S::kScaleBytes,
                         from + part * args.scale_pitch, S::kScaleBytes, full);
      cursor.advance();
    }
  }
}

// The sums of a group: 64 rows of the input by kTileColumns columns.
template <class S>
class Sums {
 public:
  using T = typename S::T;
  using Tile = Slice<kTileColumns>;

  __device__ __forceinline__ Sums(const Args& args, const typename S::Stages& ring,
                                  const std::uint8_t* scales, int group)
      : args_(args),
        ring_(ring),
        scales_(cuda::shared_address(scales) + threadIdx.x % 4 * 8),
        first_(cuda::descriptor_of(cuda::shared_address(ring.first(0)) +
                                   group * cuda::kWgmmaRows * cuda::kBoxBytes)),
        second_(cuda::descriptor_of(cuda::shared_address(ring.second(0)))) {}

  // Of a tile, whose k blocks are the next ones of the ring.
  __device__ __forceinline__ void sum(Tile& total) {
    Tile run, span;
#pragma unroll
    for (int i = 0; i < kTileColumns / 2; ++i) total[i] = span[i] = run[i] = 0;
    int left = args_.span_blocks;  // k blocks of the span
    const int blocks = args_.operands.k_blocks;
#pragma unroll 1
    for (int block = 0; block < blocks; ++block) {
      const bool last = block + 1 == blocks;
      const bool begins = S::kRunBlocks == 1 || block % S::kRunBlocks == 0;
      const bool ends = S::kRunBlocks == 1 || block % S::kRunBlocks == S::kRunBlocks - 1 || last;
      ring_.full[cursor_.stage].wait(cursor_.parity);
#pragma unroll
      for (int part = 0; part < S::kParts; ++part) {
        issue(run, part, begins);
        cuda::wgmma_wait<0>();
        cuda::pin(run);
        if (ends) fold(run, span, part);
      }
      ring_.release(cursor_.stage);
      cursor_.advance();
      if (--left > 0 && !last) continue;
      left = args_.span_blocks;
#pragma unroll
      for (int i = 0; i < kTileColumns / 2; ++i) {
        total[i] = total[i] + span[i];
        span[i] = 0;
      }
    }
  }

 private:
  __device__ __forceinline__ void issue(Tile& run, int part, bool begins) {
    const int stage = cursor_.stage * S::Stages::kStageBytes;
    cuda::wgmma_fence();
#pragma unroll
    for (int step = 0; step < S::kSteps; ++step) {
      const int at = stage + (part * S::kSteps + step) * cuda::kWgmmaBytes;
      cuda::wgmma_add_floats<T, T>(run, cuda::advanced(first_, at), cuda::advanced(second_, at),
                                   step > 0 || !begins);
    }
    cuda::wgmma_commit();
  }
  // Columns 8 j + t % 4 * 2 and the next are those of sums 4 j and 4 j + 1, and of 4 j + 2 and + 3.
  __device__ __forceinline__ void fold(const Tile& run, Tile& span, int part) const {
    const cuda::SharedAddress from = scales_ + (cursor_.stage * S::kParts + part) * S::kScaleBytes;
#pragma unroll
    for (int j = 0; j < kTileColumns / 8; ++j) {
      const float2 own = cuda::load_shared_pair(from + j * 32);
      span[4 * j] = math::fused(run[4 * j], own.x, span[4 * j]);
      span[4 * j + 1] = math::fused(run[4 * j + 1], own.y, span[4 * j + 1]);
      span[4 * j + 2] = math::fused(run[4 * j + 2], own.x, span[4 * j + 2]);
      span[4 * j + 3] = math::fused(run[4 * j + 3], own.y, span[4 * j + 3]);
    }
  }

  const Args& args_;
  const typename S::Stages& ring_;
  cuda::SharedAddress scales_;
  std::uint64_t first_, second_;
  typename S::Stages::Cursor cursor_;
};

template <class S>
__device__ __forceinline__ void multiply(const Args& args, const typename S::Stages& ring,
                                         std::uint8_t* shared) {
  const int group = cuda::uniform(static_cast<int>(threadIdx.x) / kGroupThreads - 1);
  const int warp = threadIdx.x / cuda::kWarp % kGroupWarps;
  int* staging = reinterpret_cast<int*>(shared + S::kStagingAt + group * S::kStagingBytes) +
                 warp * kStagingSums;
  Sums<S> sums(args, ring, shared + S::kScalesAt, group);
#pragma unroll 1
  for (TileSchedule schedule(args.grid, 0, 1); schedule.has_tile(); schedule.advance()) {
    const TilePlace place = schedule.place();
    const std::int64_t m =
        std::int64_t{place.down} * kTileRows + group * cuda::kWgmmaRows + warp * kWarpRows;
    Slice<kTileColumns> total;
    sums.sum(total);
    int finished[1][kTileColumns / 2];
#pragma unroll
    for (int i = 0; i < kTileColumns / 2; ++i) finished[0][i] = __float_as_int(total[i]);
    finish_sums(ScaledOutputs<float, SumsAre::Unscaled>(args.outputs, place.batch), staging,
                finished, args.outputs.rows, m, std::int64_t{place.across} * kTileColumns);
  }
}

// The grid may have any number of blocks. Block i computes tiles i, i + blocks, and so on.
template <class S>
__global__ void __launch_bounds__(kTileThreads, 1)
    multiply_panel(const __grid_constant__ Args args) {
  extern __shared__ __align__(1024) std::uint8_t shared[];
  cuda::Barrier* barriers = reinterpret_cast<cuda::Barrier*>(shared + S::kBarriersAt);
  const typename S::Stages ring{shared, barriers, barriers + S::kStages};
  if (threadIdx.x == 0) {
    if (cuda::shared_address(shared) % 1024 != 0) __trap();
    ring.open(2 * kGroupWarps);
    cuda::prefetch_map(args.operands.first);
    cuda::prefetch_map(args.operands.second);
  }
  wait_for_input(args.operands);
  __syncthreads();
  if (threadIdx.x < kGroupThreads) {
    cuda::lower_registers<40>();
    if (threadIdx.x == 0) copy_blocks<S>(args, ring, shared + S::kScalesAt);
  } else {
    cuda::raise_registers<232>();
    multiply<S>(args, ring, shared);
  }
}

}  // namespace planq::linear::sm90::groups::panels
