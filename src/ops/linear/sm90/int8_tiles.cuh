// Gemms of 8-bit codes with many rows in both operands, on the tensor cores of sm_90a: d[x, y] =
// sum over k of first[x, k] * second[y, k] in int32, then the epilogue. Integer sums modulo 2^32 do
// not depend on the order, so all kernels give the same bits.
//
// A block has three warpgroups and computes tile after tile. One thread of the first copies both
// operands to a ring of stages; the other two groups multiply.
#pragma once

#include <algorithm>
#include <cstdint>

#include "ops/linear/sm90/addend.cuh"
#include "ops/linear/sm90/main_loop.cuh"
#include "ops/linear/sm90/tiles.cuh"

namespace planq::linear::sm90 {

// Each of the two groups has tiles of its own, so that one's epilogue runs while the other
// multiplies. Tiles that both groups shared were slower at every size, as 128 x 256 and with
// clusters of two.
using TileShape = TileShapeOf<kTileRows, 6>;
using TileSums = int[kTilesEach][kTileColumns / 2];

template <class Addend>
__device__ __forceinline__ void multiply_group(const typename Addend::TileArgs& args,
                                               const TileShape::Stages& ring,
                                               std::uint8_t* shared) {
  const int group = cuda::uniform(static_cast<int>(threadIdx.x) / kGroupThreads - 1);
  const int warp = threadIdx.x / cuda::kWarp % kGroupWarps, lane = threadIdx.x % cuda::kWarp;
  const int k_blocks = args.operands.k_blocks;
  int* own = reinterpret_cast<int*>(shared + group * TileShape::kStagingBytes);
  int* staging = own + warp * kStagingSums;
  auto addend = Addend::tiles(args, own, group);
  const bool has_steps = addend.has_steps();
  TileSums sums;
  std::uint32_t number = group;
#pragma unroll 1
  for (auto schedule = schedule_of(args, group, 2); schedule.has_tile();
       schedule.advance(), number += 2) {
    const auto place = schedule.place();
    const std::int64_t m = std::int64_t{place.first_row(kTileRows)} + warp * kWarpRows;
    const std::int64_t n = std::int64_t{place.across} * kTileColumns;
    touch(args.outputs, place.batch, m + own_row(lane), n + 4 * lane);
    addend.begin(args.outputs, place.batch, m);
    TileShape::Stages::Cursor cursor(number * static_cast<std::uint32_t>(k_blocks));
    if (number > 0) cuda::named_barrier_wait(kGroupOrder + group, 2 * kGroupThreads);
    const auto before = [&](int k_block) {
      if (has_steps && number > 0 && k_block == min(kAddendKBlock, k_blocks - 1))
        cuda::named_barrier_wait(kAddendDone + group, 2 * kGroupThreads);
    };
    const auto issued = [&] {
      if (schedule.has_next())
        cuda::named_barrier_arrive(kGroupOrder + (group ^ 1), 2 * kGroupThreads);
    };
    const auto multiply = [&]<bool kFirstUnsigned, bool kSecondUnsigned>() {
      sum_stages<kFirstUnsigned, kSecondUnsigned, kTilesEach, kTileColumns>(
          sums, ring, cursor, k_blocks, before, issued);
    };
    const auto finish = [&](const auto& out) {
      finish_sums(out, staging, sums, place.end_row(args.outputs.rows), m, n);
    };
    if constexpr (Addend::kAdds) {
      multiply.template operator()<false, false>();
      scale_rows(sums, addend.scales);
      addend.add(sums, args.outputs, place.batch, m, n);
      if (has_steps && schedule.has_next())
        cuda::named_barrier_arrive(kAddendDone + (group ^ 1), 2 * kGroupThreads);
      finish(ScaledOutputs<float, SumsAre::Scaled>(args.outputs, place.batch));
    } else {
      with_types(args.operands, multiply);
      with_outputs(args.outputs, place.batch, finish);
    }
  }
}

// The grid may have any number of blocks. Block i computes tiles i, i + blocks, and so on.
template <class Addend>
__global__ void __launch_bounds__(kTileThreads, 1)
    multiply_tiles(const __grid_constant__ typename Addend::TileArgs args) {
  extern __shared__ __align__(1024) std::uint8_t shared[];
  cuda::Barrier* barriers = reinterpret_cast<cuda::Barrier*>(shared + TileShape::kBarriersAt);
  const TileShape::Stages ring{shared, barriers, barriers + TileShape::kStages};
  std::uint8_t* staging = shared + TileShape::kStagingAt;
  if (threadIdx.x == 0) {
    if (cuda::shared_address(shared) % 1024 != 0) __trap();
    ring.open(kGroupWarps + Addend::stage_readers(args));
    cuda::prefetch_map(args.operands.first);
    cuda::prefetch_map(args.operands.second);
  }
  __syncthreads();
  if (threadIdx.x < kGroupThreads) {
    // The first group gives up registers, which the others get.
    cuda::lower_registers<Addend::kCopyRegisters>();
    const int warp = cuda::uniform(static_cast<int>(threadIdx.x) / cuda::kWarp);
    if (threadIdx.x == 0) copy_tiles<TileShape>(args, ring);
    if constexpr (Addend::kAdds)
      if (warp > 0) Addend::bring_tiles(args, ring, staging, warp - 1);
  } else {
    cuda::raise_registers<Addend::kGroupRegisters>();
    multiply_group<Addend>(args, ring, staging);
  }
}

}  // namespace planq::linear::sm90
