// Tiles for many rows on both sides: their shapes, what lies where in shared memory, and the thread
// that fills the ring.
#pragma once

#include <cstdint>

#include "ops/linear/sm90/args.cuh"
#include "ops/linear/sm90/ring.cuh"
#include "ops/linear/sm90/staging.cuh"

namespace planq::linear::sm90 {

inline constexpr int kTileRows = 128;
inline constexpr int kTilesEach = kTileRows / cuda::kProductRows;  // of a group's instructions
inline constexpr int kTileThreads = 3 * kGroupThreads;

// Shared memory of two groups: a ring of stages for tiles of kRows x kTileColumns, and what each
// group passes its sums through.
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

// The thread that fills the ring, with numbers of A and B.
template <class Shape, class A = std::int8_t, class B = A>
__device__ __forceinline__ void copy_tiles(const TileArgs& args,
                                           const typename Shape::Stages& ring) {
  const OperandMaps& operands = args.operands;
  typename Shape::Stages::Cursor cursor;
#pragma unroll 1
  for (TileSchedule schedule(args.grid, 0, 1); schedule.has_tile(); schedule.advance()) {
    const TilePlace place = schedule.place();
    const int x = place.down * Shape::kRows, y = place.across * kTileColumns;
    const int x_batch = place.batch * operands.first_step;
    const int y_batch = place.batch * operands.second_step;
#pragma unroll 1
    for (int box = 0; box < operands.k_blocks; ++box) {
      ring.empty[cursor.stage].wait(cursor.parity ^ 1);
      cuda::Barrier& full = ring.full[cursor.stage];
      full.arrive_and_expect(Shape::Stages::kStageBytes);
      copy_rows<Shape::kRows, A>(ring.first(cursor.stage), operands.first, box, x, x_batch, full);
      copy_rows<kTileColumns, B>(ring.second(cursor.stage), operands.second, box, y, y_batch, full);
      cursor.advance();
    }
  }
}

}  // namespace planq::linear::sm90
