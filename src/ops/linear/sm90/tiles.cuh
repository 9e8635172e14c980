// What the tile kernels share (int8_tiles.cuh, float_tiles.cuh): the shape of a tile, how a block
// divides its shared memory, and the thread that copies.
#pragma once

#include <cstdint>

#include "ops/linear/sm90/args.cuh"
#include "ops/linear/sm90/ring.cuh"
#include "ops/linear/sm90/staging.cuh"

namespace planq::linear::sm90 {

inline constexpr int kTileRows = 128;
inline constexpr int kTilesEach = kTileRows / cuda::kWgmmaRows;  // wgmma tiles of 64 rows in a tile
inline constexpr int kTileThreads = 3 * kGroupThreads;

// Shared memory of a block: a ring of stages for tiles of kRows x kTileColumns outputs, the staging
// of two groups, and the barriers of the ring.
template <int kRows_, int kStages_>
struct TileShapeOf {
  static constexpr int kRows = kRows_, kStages = kStages_;
  using Stages = Ring<kRows, kTileColumns, kStages>;
  static constexpr int kStagingAt = Stages::kBytes;
  static constexpr int kStagingBytes = kGroupWarps * kStagingSums * static_cast<int>(sizeof(int));
  static constexpr int kBarriersAt = kStagingAt + 2 * kStagingBytes;
  static constexpr int kSharedBytes =
      kBarriersAt + 2 * kStages * static_cast<int>(sizeof(cuda::Barrier));
  static_assert(kSharedBytes <= 227 * 1024);
  static_assert(kStagingAt % 1024 == 0 && kStagingBytes % 1024 == 0);
};

// What the copying thread does, for all tiles of the block. A, B: the types of the operands'
// elements.
template <class Shape, class A = std::int8_t, class B = A, class Args>
__device__ __forceinline__ void copy_tiles(const Args& args, const typename Shape::Stages& ring) {
  const OperandMaps& operands = args.operands;
  typename Shape::Stages::Cursor cursor;
#pragma unroll 1
  for (auto schedule = schedule_of(args, 0, 1); schedule.has_tile(); schedule.advance()) {
    const auto place = schedule.place();
    const int x = place.first_row(Shape::kRows), y = place.across * kTileColumns;
    const int x_batch = place.batch * operands.first_step;
    const int y_batch = place.batch * operands.second_step;
#pragma unroll 1
    for (int k_block = 0; k_block < operands.k_blocks; ++k_block) {
      ring.empty[cursor.stage].wait(cursor.parity ^ 1);
      cuda::Barrier& full = ring.full[cursor.stage];
      full.arrive_and_expect(Shape::Stages::kStageBytes);
      copy_rows<Shape::kRows, A>(ring.first(cursor.stage), operands.first, k_block, x, x_batch,
                                 full);
      copy_rows<kTileColumns, B>(ring.second(cursor.stage), operands.second, k_block, y, y_batch,
                                 full);
      cursor.advance();
    }
  }
}

}  // namespace planq::linear::sm90
