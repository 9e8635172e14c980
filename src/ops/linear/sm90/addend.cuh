// What the kernels for 8-bit codes add to the sums of a gemm: a template argument, so that this
// engine names no operator. An addend has its own kernel arguments, warps that bring what is added,
// and code that the multiplying warps call before and after the main loop. NoAddend adds nothing
// and shows what an addend must have. linear_llm_int8 has one that adds outliers
// (linear_llm_int8/sm90_addend.cuh).
#pragma once

#include <cstdint>

#include "ops/linear/sm90/args.cuh"
#include "ops/linear/sm90/ring.cuh"

namespace planq::linear::sm90 {

// Named barriers of a block: those of an addend, and those that its own must not collide with.
//
// In tiles: the two groups multiply one after the other. kGroupOrder + group lets a group begin.
inline constexpr int kGroupOrder = 1;
// In tiles whose addend needs the tensor cores, too. The group that has the next tile issues its
// wgmma up to k block kAddendKBlock, and waits there until the other group's addend is done. Else
// its wgmma would occupy the tensor cores, and the addend would wait for all of them.
inline constexpr int kAddendDone = 9, kAddendKBlock = 3;
// In few rows: the stages have been read, and the addend's warps have brought everything.
inline constexpr int kStagesRead = 1, kAddendComplete = 2;

// A block's share of a tile of few rows. The blocks of a cluster split k, and in the end they share
// out the rows.
struct Share {
  int part, parts;

  // The first k block of part `number`.
  __device__ __forceinline__ int k_block(int k_blocks, int number) const {
    return static_cast<int>(std::int64_t{k_blocks} * number / parts);
  }
  // A warp's rows are first(warp), first(warp) + step(), and so on.
  __device__ __forceinline__ int first(int warp) const { return part * kGroupWarps + warp; }
  __device__ __forceinline__ int step() const { return parts * kGroupWarps; }
};

// The rows of sums that a warp adds to, in shared memory. `sums` is where the lane's four columns
// begin in row number 0; row number i is i * pitch further, and is row m + i * step of the output.
// Lane i has the scale of row number i.
struct SumRows {
  int* sums;
  int pitch, count;
  std::int64_t m, step;
};

struct NoAddend {
  // The arguments of the kernels. An addend derives from them.
  using TileArgs = sm90::TileArgs;
  using FewRowsArgs = sm90::FewRowsArgs;
  // Whether there is anything to add. If so, sums first become float32 and meet the scales of
  // their rows.
  static constexpr bool kAdds = false;
  // Warps that bring what is added, beside those that multiply and the one that copies.
  static constexpr int kWarps = 0;

  // In tiles: registers of a thread that copies or brings, and of one that multiplies.
  static constexpr int kCopyRegisters = 40, kGroupRegisters = 232;
  // How many of these warps release each stage, beside those of a group.
  static __device__ __forceinline__ int stage_readers(const TileArgs&) { return 0; }
  // What a group adds, for all tiles that it computes.
  struct Tiles {
    // Whether it uses the tensor cores.
    __device__ __forceinline__ bool has_steps() const { return false; }
    // Called before a tile, when the one before it is stored.
    __device__ __forceinline__ void begin(const Outputs&, int, std::int64_t) const {}
  };
  // `staging`: the shared memory of the group's epilogue, which is free while it multiplies.
  static __device__ __forceinline__ Tiles tiles(const TileArgs&, int*, int) { return {}; }

  // In few rows: shared memory of a block, and of each warp behind the sums.
  static constexpr int kSharedBytes = 0, kWarpBytes = 0;
  // Prefetches what the addend reads for a row.
  static __device__ __forceinline__ void touch(const FewRowsArgs&, int, std::int64_t) {}
  struct FewRows {};
  static __device__ __forceinline__ FewRows few_rows(const FewRowsArgs&, std::uint8_t*, int,
                                                     std::int64_t, std::uint8_t*) {
    return {};
  }
};

}  // namespace planq::linear::sm90
