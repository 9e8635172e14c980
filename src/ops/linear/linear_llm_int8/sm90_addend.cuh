// Outliers as the addend of the kernels for sm_90a (sm90/addend.cuh): what the warps do that bring
// the weight's codes.
#pragma once

#include <cstdint>

#include "ops/linear/linear_llm_int8/sm90_fma.cuh"
#include "ops/linear/linear_llm_int8/sm90_steps.cuh"
#include "ops/linear/sm90/int8_few_rows.cuh"
#include "ops/linear/sm90/int8_tiles.cuh"

namespace planq::linear_llm_int8::sm90 {

struct OutlierTileArgs : TileArgs {
  OutlierList listed;
};
struct OutlierFewRowsArgs : FewRowsArgs {
  OutlierList listed;
};

// Number `warp` of the warps that bring codes for both groups: listed ones, or they pick them.
template <class Order, class Shape>
__device__ __forceinline__ void bring_tiles(const OutlierTileArgs& args,
                                            const typename Shape::Stages& ring,
                                            std::uint8_t* staging, int warp) {
  const OutlierList& listed = args.listed;
  const OutlierColumns columns(listed);
  const Picker<Order> picker(listed, columns);
  const int boxes = args.operands.k_blocks;
  std::uint32_t number = 0;
#pragma unroll 1
  for (TileSchedule schedule(args.grid, 0, 1); schedule.has_tile(); schedule.advance(), ++number) {
    const TileBarriers barriers = barriers_of(static_cast<int>(number % 2));
    auto* codes = reinterpret_cast<std::uint16_t*>(staging + number % 2 * Shape::kStagingBytes);
    cuda::named_barrier_wait(barriers.free, kPickThreads);
    if (listed.codes) {
      const std::int64_t n = std::int64_t{schedule.place().across} * kTileColumns;
      bring_codes<Order>(listed, min(columns.count(), kPlaces), n, warp, codes);
    } else {
      picker.clear(codes, warp);
      pick_boxes(
          picker, ring, number * static_cast<std::uint32_t>(boxes), 0, boxes, warp,
          [&](int stage) { return ring.second(stage); }, codes);
    }
    cuda::show_to_products();
    cuda::named_barrier_arrive(barriers.full, kPickThreads);
  }
}

// The block that has this lane's column of a half of the list in its part of k; this one where
// there is none.
template <class Share>
__device__ __forceinline__ int owner_of(int column, const Share& share, int boxes) {
  if (column < 0) return share.part;
  const unsigned box = static_cast<unsigned>(column) / cuda::kBoxBytes;
  const auto count = static_cast<unsigned>(boxes);
  return static_cast<int>(((box + 1) * static_cast<unsigned>(share.parts) + count - 1) / count) - 1;
}

// The codes, place by place, that other blocks of the cluster have picked: all at once, for it
// takes long. By 128 threads, of which this one is number `thread`, after a barrier of the cluster.
template <class Share>
__device__ __forceinline__ void collect_codes(const OutlierColumns& columns, const Share& share,
                                              int boxes, int thread, std::uint16_t* codes) {
  if (share.parts == 1) return;
  constexpr int kAcross = kCodeColumns * 2 / 16, kDown = kCodeColumns / kAcross;
  constexpr int kEach = kPlaces / kDown;
  const int first = thread / kAcross;
  auto* own = reinterpret_cast<uint4*>(codes) + thread;
  const int owners[2] = {owner_of(columns.column(0), share, boxes),
                         owner_of(columns.column(1), share, boxes)};
  uint4 held[kEach];
  bool others[kEach];
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    const int place = first + i * kDown;
    const int rank =
        __shfl_sync(cuda::kAllLanes, owners[i * kDown / cuda::kWarp], place % cuda::kWarp);
    others[i] = place < columns.count() && rank != share.part;
    if (others[i])
      held[i] = cuda::load_from_block(cuda::shared_address(own + i * kCodeColumns), rank);
  }
#pragma unroll
  for (int i = 0; i < kEach; ++i)
    if (others[i]) own[i * kCodeColumns] = held[i];
}

// Sums by class: TileSums_ of tiles, FewRowsSums of few rows.
template <class GroupOutliers, class WarpOutliers>
struct OutlierAddend {
  using TileArgs = OutlierTileArgs;
  using FewRowsArgs = OutlierFewRowsArgs;
  static constexpr bool kAdds = true;
  static constexpr int kWarps = kPickWarps;
  static constexpr int kCopyRegisters = 56, kGroupRegisters = 224;
  static constexpr int kSharedBytes = kCodeBytes, kWarpBytes = kStagedBytes;
  static_assert(kCodeBytes <= TileShape::kStagingBytes);

  static __device__ __forceinline__ int stage_readers(const TileArgs& args) {
    return args.listed.codes ? 0 : 1;
  }
  // Codes lie in a group's staging, which is free while it multiplies.
  static __device__ __forceinline__ GroupOutliers tiles(const TileArgs& args, int* staging,
                                                        int group) {
    return {args.listed, reinterpret_cast<std::uint16_t*>(staging), barriers_of(group)};
  }
  static __device__ __forceinline__ void bring_tiles(const TileArgs& args,
                                                     const TileShape::Stages& ring,
                                                     std::uint8_t* staging, int warp) {
    sm90::bring_tiles<typename GroupOutliers::Order, TileShape>(args, ring, staging, warp);
  }

  static __device__ __forceinline__ void touch(const FewRowsArgs& args, int batch,
                                               std::int64_t row) {
    touch_values(args.listed, args.listed.capacity, args.outputs, batch, row);
  }
  static __device__ __forceinline__ WarpOutliers few_rows(const FewRowsArgs& args,
                                                          std::uint8_t* shared, int batch,
                                                          std::int64_t n, std::uint8_t* own) {
    return {args.listed, reinterpret_cast<std::uint16_t*>(shared), SharePlace{batch, n},
            reinterpret_cast<float*>(own)};
  }
  // What the warps do that do not multiply, the first of which has copied: the others pick the
  // codes of this block's part of k, and all together get the rest from the cluster's other blocks,
  // if this block has rows to finish.
  template <class Ring>
  static __device__ __forceinline__ void bring_few_rows(const FewRowsArgs& args, const Ring& ring,
                                                        const Share& share, bool has_rows,
                                                        std::uint8_t* shared) {
    using Order = typename WarpOutliers::Order;
    auto* codes = reinterpret_cast<std::uint16_t*>(shared);
    const int k_blocks = args.operands.k_blocks;
    const OutlierColumns columns(args.listed);
    const int thread = static_cast<int>(threadIdx.x) - kGroupThreads;
    const int warp = cuda::uniform(thread / cuda::kWarp) - 1;
    if (warp >= 0) {
      const Picker<Order> picker(args.listed, columns);
      const int first = share.box(k_blocks, share.part);
      picker.clear(codes, warp);
      pick_boxes(
          picker, ring, 0, first, share.box(k_blocks, share.part + 1) - first, warp,
          [&](int stage) { return ring.first(stage); }, codes);
      cuda::named_barrier_arrive(kStagesRead, kReadersOf<OutlierAddend>);
    }
    cuda::cluster_barrier();
    if (!has_rows) return;
    collect_codes(columns, share, k_blocks, thread, codes);
    cuda::named_barrier_arrive(kAddendComplete, kFewRowsThreads<OutlierAddend>);
  }
};

using SequentialOutliers = OutlierAddend<TileOutliers<kTilesEach>, ShareOutliers>;
using TensorOutliers = OutlierAddend<TileSteps<kTilesEach>, ShareSteps>;

}  // namespace planq::linear_llm_int8::sm90
