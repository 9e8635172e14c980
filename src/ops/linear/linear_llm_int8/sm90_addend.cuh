// Outliers as the addend of the sm_90a kernels (sm90/addend.cuh), and what the warps do that bring
// the weight's codes at outlier columns.
#pragma once

#include <cstdint>

#include "ops/linear/linear_llm_int8/sm90_fma.cuh"
#include "ops/linear/linear_llm_int8/sm90_steps.cuh"
#include "ops/linear/sm90/int8_few_rows.cuh"
#include "ops/linear/sm90/int8_tiles.cuh"

namespace planq::linear_llm_int8::sm90 {

struct OutlierTileArgs : TileArgs {
  OutlierList outliers;
};
struct OutlierFewRowsArgs : FewRowsArgs {
  OutlierList outliers;
};

// What warp `warp` of those that bring codes does in tiles, for both groups: it copies codes that a
// kernel before has gathered, or picks them from the stages.
template <class Order, class Shape>
__device__ __forceinline__ void bring_tiles(const OutlierTileArgs& args,
                                            const typename Shape::Stages& ring,
                                            std::uint8_t* staging, int warp) {
  const OutlierList& outliers = args.outliers;
  const OutlierColumns columns(outliers);
  const Picker<Order> picker(outliers, columns);
  const int k_blocks = args.operands.k_blocks;
  std::uint32_t number = 0;
#pragma unroll 1
  for (TileSchedule schedule(args.grid, 0, 1); schedule.has_tile(); schedule.advance(), ++number) {
    const TileBarriers barriers = barriers_of(static_cast<int>(number % 2));
    auto* codes = reinterpret_cast<std::uint16_t*>(staging + number % 2 * Shape::kStagingBytes);
    cuda::named_barrier_wait(barriers.free, kPickThreads);
    if (outliers.codes) {
      const std::int64_t n = std::int64_t{schedule.place().across} * kTileColumns;
      bring_codes<Order>(outliers, min(columns.count(), kPlaces), n, warp, codes);
    } else {
      picker.clear(codes, warp);
      pick_k_blocks(
          picker, ring, number * static_cast<std::uint32_t>(k_blocks), 0, k_blocks, warp,
          [&](int stage) { return ring.second(stage); }, codes);
    }
    cuda::fence_async_proxy();
    cuda::named_barrier_arrive(barriers.full, kPickThreads);
  }
}

// The block of the cluster whose part of k has this lane's outlier column, or this block if there
// is no such column. `column`: as OutlierColumns::column() gives it.
template <class Share>
__device__ __forceinline__ int owner_of(int column, const Share& share, int k_blocks) {
  if (column < 0) return share.part;
  const unsigned k_block = static_cast<unsigned>(column) / cuda::kBoxBytes;
  const auto count = static_cast<unsigned>(k_blocks);
  return static_cast<int>(((k_block + 1) * static_cast<unsigned>(share.parts) + count - 1) /
                          count) -
         1;
}

// Collects the codes that other blocks of the cluster have picked. A thread starts all its loads
// before it waits for one, since such loads take long. Called by 128 threads after a barrier of the
// cluster. `thread`: this one's number.
template <class Share>
__device__ __forceinline__ void collect_codes(const OutlierColumns& columns, const Share& share,
                                              int k_blocks, int thread, std::uint16_t* codes) {
  if (share.parts == 1) return;
  constexpr int kAcross = kCodeColumns * 2 / 16, kDown = kCodeColumns / kAcross;
  constexpr int kEach = kPlaces / kDown;
  const int first = thread / kAcross;
  auto* own = reinterpret_cast<uint4*>(codes) + thread;
  const int owners[2] = {owner_of(columns.column(0), share, k_blocks),
                         owner_of(columns.column(1), share, k_blocks)};
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

// GroupOutliers: adds outliers to the tiles of a group. WarpOutliers: adds outliers to a warp's
// rows in few-rows kernels.
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
    return args.outliers.codes ? 0 : 1;
  }
  // Codes lie in the group's staging, which is free while the group multiplies.
  static __device__ __forceinline__ GroupOutliers tiles(const TileArgs& args, int* staging,
                                                        int group) {
    return {args.outliers, reinterpret_cast<std::uint16_t*>(staging), barriers_of(group)};
  }
  static __device__ __forceinline__ void bring_tiles(const TileArgs& args,
                                                     const TileShape::Stages& ring,
                                                     std::uint8_t* staging, int warp) {
    sm90::bring_tiles<typename GroupOutliers::Order, TileShape>(args, ring, staging, warp);
  }

  static __device__ __forceinline__ void touch(const FewRowsArgs& args, int batch,
                                               std::int64_t row) {
    touch_values(args.outliers, args.outliers.capacity, args.outputs, batch, row);
  }
  static __device__ __forceinline__ WarpOutliers few_rows(const FewRowsArgs& args,
                                                          std::uint8_t* shared, int batch,
                                                          std::int64_t n, std::uint8_t* own) {
    return {args.outliers, reinterpret_cast<std::uint16_t*>(shared), SharePlace{batch, n},
            reinterpret_cast<float*>(own)};
  }
  // What the warps do that do not multiply. The first has copied the stages. The others pick the
  // codes in this block's part of k. Then all of them collect the codes of the cluster's other
  // blocks, if this block has rows to finish.
  template <class Ring>
  static __device__ __forceinline__ void bring_few_rows(const FewRowsArgs& args, const Ring& ring,
                                                        const Share& share, bool has_rows,
                                                        std::uint8_t* shared) {
    using Order = typename WarpOutliers::Order;
    auto* codes = reinterpret_cast<std::uint16_t*>(shared);
    const int k_blocks = args.operands.k_blocks;
    const OutlierColumns columns(args.outliers);
    const int thread = static_cast<int>(threadIdx.x) - kGroupThreads;
    const int warp = cuda::uniform(thread / cuda::kWarp) - 1;
    if (warp >= 0) {
      const Picker<Order> picker(args.outliers, columns);
      const int first = share.k_block(k_blocks, share.part);
      picker.clear(codes, warp);
      pick_k_blocks(
          picker, ring, 0, first, share.k_block(k_blocks, share.part + 1) - first, warp,
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
