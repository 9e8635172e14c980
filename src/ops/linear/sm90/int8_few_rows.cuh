// Gemms of 8-bit codes with few rows of input (tokens), on the tensor cores of sm_90a. They take as
// long as the weight takes to read. The weight is wgmma's first operand, the tokens are its second.
// A cluster computes a tile of the output, and its blocks split k. The bits are those of
// int8_tiles.cuh.
#pragma once

#include <algorithm>
#include <cstdint>

#include "cuda/memory_access.cuh"
#include "ops/linear/sm90/addend.cuh"
#include "ops/linear/sm90/fragments.cuh"
#include "ops/linear/sm90/main_loop.cuh"

namespace planq::linear::sm90 {

inline constexpr int kFewRowsColumns = 128;                // of the output: rows of the weight
inline constexpr int kFewRowsPitch = kFewRowsColumns + 4;  // padded against bank conflicts
// Threads of a block: a group that multiplies, a warp that copies, and the warps of the addend.
template <class Addend>
inline constexpr int kFewRowsThreads = kGroupThreads + (1 + Addend::kWarps) * cuda::kWarp;
// Threads that read the stages: the group that multiplies and the warps of the addend.
template <class Addend>
inline constexpr int kReadersOf = kGroupThreads + Addend::kWarps * cuda::kWarp;

// kResident: blocks that share a multiprocessor.
template <int kTokens, int kResident, class Addend = NoAddend>
struct FewRowsShape {
  static constexpr int kMostStages = kTokens <= 16 ? 6 : kTokens <= 32 ? 5 : kTokens <= 64 ? 4 : 3;
  static constexpr int kStages =
      (Addend::kAdds && kTokens <= 32 ? kMostStages - 1 : kMostStages) * (2 / kResident);
  using Stages = Ring<kFewRowsColumns, kTokens, kStages>;
  // In the end, the sums of a block overwrite the stages, token by token.
  static constexpr int kSumBytes = kTokens * kFewRowsPitch * static_cast<int>(sizeof(int));
  static constexpr int kAddendAt = Stages::kBytes;
  static constexpr int kBarriersAt = kAddendAt + Addend::kSharedBytes;
  static constexpr int kSharedBytes =
      kBarriersAt + 2 * kStages * static_cast<int>(sizeof(cuda::Barrier));
  static_assert(kSumBytes + kGroupWarps * Addend::kWarpBytes <= Stages::kBytes);
  static_assert(kResident * (kSharedBytes + 1024) <= 228 * 1024);
};

template <int kTokens>
__device__ __forceinline__ void store_sums(int* to, const int (&sums)[2][kTokens / 2]) {
  const int lane = threadIdx.x % cuda::kWarp, warp = threadIdx.x / cuda::kWarp;
  to += warp * kWarpRows + lane / 4 + lane % 4 * 2 * kFewRowsPitch;
#pragma unroll
  for (int tile = 0; tile < 2; ++tile)
#pragma unroll
    for (int i = 0; i < kTokens / 2; ++i)
      to[(i / 4 * 8 + i % 2) * kFewRowsPitch + tile * cuda::kWgmmaRows + i % 4 / 2 * 8] =
          sums[tile][i];
}

// Adds up the sums of all blocks of the cluster, for the tokens that are this block's share:
// `first`, first + step, and so on. A warp adds one token at a time. The totals replace this
// block's own sums of the token, which no other block reads.
__device__ __forceinline__ void add_shares(int* sums, int blocks, int first, int step, int tokens) {
  constexpr int kAtOnce = 4;
  const int lane = threadIdx.x % cuda::kWarp;
  sums += 4 * lane;
#pragma unroll 1
  for (int token = first; token < tokens; token += kAtOnce * step) {
    // Unsigned, because sums may wrap.
    uint4 totals[kAtOnce] = {};
#pragma unroll 2
    for (int block = 0; block < blocks; ++block) {
      uint4 parts[kAtOnce];
#pragma unroll
      for (int j = 0; j < kAtOnce; ++j)
        parts[j] = cuda::load_from_block(
            cuda::shared_address(sums + min(token + j * step, tokens - 1) * kFewRowsPitch), block);
#pragma unroll
      for (int j = 0; j < kAtOnce; ++j)
        totals[j] = make_uint4(totals[j].x + parts[j].x, totals[j].y + parts[j].y,
                               totals[j].z + parts[j].z, totals[j].w + parts[j].w);
    }
#pragma unroll
    for (int j = 0; j < kAtOnce; ++j)
      if (token + j * step < tokens)
        *reinterpret_cast<uint4*>(sums + (token + j * step) * kFewRowsPitch) = totals[j];
  }
}

// Finishes this block's share of the tokens. `m`, `n`: the row and column of the output where the
// tile begins.
template <class Addend, class Out, class Adds>
__device__ __forceinline__ void finish_share(const Out& out, const Outputs& outputs, int* sums,
                                             const Share& share, int tokens, std::int64_t m,
                                             std::int64_t n, Adds addend) {
  const int lane = threadIdx.x % cuda::kWarp, warp = threadIdx.x / cuda::kWarp;
  const int first = share.first(warp), step = share.step();
  n += 4 * lane;
  const int count = max(tokens - first + step - 1, 0) / step;
  int* own = sums + first * kFewRowsPitch + 4 * lane;
  const SumRows rows_of_warp{own, step * kFewRowsPitch, count, m + first, step};
  if constexpr (Addend::kAdds) addend.ask(rows_of_warp);
  const auto columns = out.columns(n);
  const auto rows = out.row(m + first + lane * step);  // in lane i: of the warp's row number i
  cuda::cluster_barrier();
  if (share.parts > 1) add_shares(sums, share.parts, first, step, tokens);
  if constexpr (Addend::kAdds)
    if (share.first(0) < tokens) {  // whether any warp of the block has a token
      cuda::named_barrier_wait(kAddendComplete, kFewRowsThreads<Addend>);
      addend.add(rows_of_warp, rows.scale, outputs.columns);
    }
  out.finish({own, step * kFewRowsPitch, count, 0, m + first, step, n}, rows, columns);
}

// Fills the stages for the first time before the kernel before has ended, but with the weight
// alone; then waits for it. Calls copy(k_block, stage, its barrier) for up to `k_blocks` k blocks,
// and returns for how many.
template <class Ring, class Copy>
__device__ __forceinline__ int copy_ahead(const Ring& ring, int k_blocks, const Copy& copy) {
  const int count = min(k_blocks, Ring::kCount);
#pragma unroll 1
  for (int k_block = 0; k_block < count; ++k_block) {
    ring.full[k_block].arrive_and_expect(Ring::kStageBytes);
    copy(k_block, k_block, ring.full[k_block]);
  }
  cuda::wait_for_previous();
  return count;
}

// What the copying thread does: fills the ring with k blocks `first` to last - 1. `n`: the first
// row of the weight. `m`: the first token.
template <class Ring>
__device__ __forceinline__ void copy_few_rows(const OperandMaps& operands, const Ring& ring,
                                              int batch, int first, int last, int n, int m) {
  const auto copy_weight = [&](int k_block, int stage, const cuda::Barrier& full) {
    cuda::copy_box(ring.first(stage), operands.first, (first + k_block) * cuda::kBoxBytes, n,
                   batch * operands.first_step, full);
  };
  int ahead = 0;
  if (operands.waits == Waits::ForInput) ahead = copy_ahead(ring, last - first, copy_weight);
  typename Ring::Cursor cursor;
#pragma unroll 1
  for (int k_block = 0; k_block < last - first; ++k_block) {
    cuda::Barrier& full = ring.full[cursor.stage];
    if (k_block >= ahead) {
      ring.empty[cursor.stage].wait(cursor.parity ^ 1);
      full.arrive_and_expect(Ring::kStageBytes);
      copy_weight(k_block, cursor.stage, full);
    }
    cuda::copy_box(ring.second(cursor.stage), operands.second, (first + k_block) * cuda::kBoxBytes,
                   m, batch * operands.second_step, full);
    cursor.advance();
  }
}

// What the four warps that multiply do: `k_blocks` stages, then the epilogue. `m`, `n`: the row and
// column of the output where the tile begins.
template <int kTokens, class Addend, class Ring>
__device__ __forceinline__ void multiply_share(const typename Addend::FewRowsArgs& args,
                                               const Ring& ring, const Share& share, int batch,
                                               int k_blocks, std::int64_t m, std::int64_t n,
                                               std::uint8_t* shared) {
  const int lane = threadIdx.x % cuda::kWarp, warp = threadIdx.x / cuda::kWarp;
  const std::int64_t own_row = m + share.first(warp) + lane * share.step();
  touch(args.outputs, batch, own_row, n + 4 * lane);
  Addend::touch(args, batch, own_row);
  int sums[2][kTokens / 2];
  // A block without a k block of its own contributes zeros.
#pragma unroll
  for (int i = 0; i < kTokens / 2; ++i) sums[0][i] = sums[1][i] = 0;
  const auto multiply = [&]<bool kFirstUnsigned, bool kSecondUnsigned>() {
    sum_stages<kFirstUnsigned, kSecondUnsigned, 2, kTokens>(
        sums, ring, typename Ring::Cursor(), cuda::uniform(k_blocks), [](int) {}, [] {});
  };
  if constexpr (Addend::kAdds)
    multiply.template operator()<false, false>();
  else
    with_types(args.operands, multiply);
  // Sums overwrite the stages when every warp has read them.
  cuda::named_barrier_wait(kStagesRead, kReadersOf<Addend>);
  int* held = reinterpret_cast<int*>(ring.stages);
  store_sums<kTokens>(held, sums);
  const auto tokens = static_cast<int>(min(std::int64_t{kTokens}, args.outputs.rows - m));
  const auto finish = [&](const auto& out, const auto& addend) {
    finish_share<Addend>(out, args.outputs, held, share, tokens, m, n, addend);
  };
  if constexpr (Addend::kAdds) {
    std::uint8_t* own =
        reinterpret_cast<std::uint8_t*>(held + kTokens * kFewRowsPitch) + warp * Addend::kWarpBytes;
    finish(ScaledOutputs<float, SumsAre::Scaled>(args.outputs, batch),
           Addend::few_rows(args, shared, batch, n, own));
  } else {
    with_outputs(args.outputs, batch,
                 [&](const auto& out) { finish(out, typename Addend::FewRows{}); });
  }
}

// A cluster computes one tile. Its blocks split k.
template <int kTokens, int kResident, class Addend>
__global__ void __launch_bounds__(kFewRowsThreads<Addend>, kResident)
    multiply_few_rows(const __grid_constant__ typename Addend::FewRowsArgs args) {
  using Shape = FewRowsShape<kTokens, kResident, Addend>;
  extern __shared__ __align__(1024) std::uint8_t shared[];
  cuda::Barrier* barriers = reinterpret_cast<cuda::Barrier*>(shared + Shape::kBarriersAt);
  const typename Shape::Stages ring{shared, barriers, barriers + Shape::kStages};
  std::uint8_t* added = shared + Shape::kAddendAt;
  const OperandMaps& operands = args.operands;
  const Share share{cuda::cluster_rank(), cuda::cluster_size()};
  // Tiles with the same rows of the weight have neighbouring numbers, so that these rows are read
  // from memory once.
  const std::uint32_t tile = cuda::cluster_index();
  const int down = static_cast<int>(tile % args.down);
  const int across = static_cast<int>(tile / args.down % args.across);
  const int batch = static_cast<int>(tile / args.down / args.across);
  const int first = share.k_block(operands.k_blocks, share.part);
  const int last = share.k_block(operands.k_blocks, share.part + 1);
  const std::int64_t m = std::int64_t{down} * kTokens;
  const std::int64_t n = std::int64_t{across} * kFewRowsColumns;
  if (threadIdx.x == 0) {
    if (cuda::shared_address(shared) % 1024 != 0) __trap();
    ring.open(kGroupWarps + (Addend::kAdds ? 1 : 0));
    cuda::prefetch_map(operands.first);
    cuda::prefetch_map(operands.second);
  }
  __syncthreads();
  if (threadIdx.x >= kGroupThreads) {
    if constexpr (Addend::kAdds && kResident > 1) cuda::lower_registers<56>();
    const auto copy = [&] {
      if (threadIdx.x == kGroupThreads)
        copy_few_rows(operands, ring, batch, first, last, static_cast<int>(n), static_cast<int>(m));
    };
    if constexpr (Addend::kAdds) {
      copy();
      Addend::bring_few_rows(args, ring, share, share.first(0) < args.outputs.rows - m, added);
    } else {
      copy();
      cuda::cluster_barrier();
    }
  } else {
    if constexpr (Addend::kAdds && kResident > 1) cuda::raise_registers<200>();
    wait_for_input(operands);
    multiply_share<kTokens, Addend>(args, ring, share, batch, last - first, m, n, added);
  }
  // A block must not end while others read its sums.
  cuda::cluster_barrier_unordered();
}

}  // namespace planq::linear::sm90
