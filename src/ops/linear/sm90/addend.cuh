// What kernels for codes of 8 bits add to the sums of their products, as a template argument: their
// arguments, warps that bring what is added, the registers and shared memory that these need, and
// what the warps that multiply do before and after. NoAddend is that of products alone, and shows
// what an addend has to have; an operator that adds more has its own (linear_llm_int8).
#pragma once

#include <cstdint>

#include "ops/linear/sm90/args.cuh"
#include "ops/linear/sm90/ring.cuh"

namespace planq::linear::sm90 {

// Barriers of a block by name that an addend uses, or those it works with.
//
// Of tiles: the order in which the two groups multiply, one after the other.
inline constexpr int kGroupOrder = 1;
// Of tiles whose addend needs the tensor cores, too: it finds them free, since the other group's
// products run up to this box, and wait there. They would keep it waiting for all of their time.
inline constexpr int kAddendDone = 9, kAddendBox = 3;
// Of few rows: the stages are read, and what other warps bring is complete.
inline constexpr int kStagesRead = 1, kAddendComplete = 2;

// What a block of a cluster has of a tile of few rows: part `part` of k, and in the end some of
// the rows.
struct Share {
  int part, parts;

  // The first box along k of a part.
  __device__ __forceinline__ int box(int boxes, int number) const {
    return static_cast<int>(std::int64_t{boxes} * number / parts);
  }
  // A warp's rows are first(warp), first(warp) + step(), ...
  __device__ __forceinline__ int first(int warp) const { return part * kGroupWarps + warp; }
  __device__ __forceinline__ int step() const { return parts * kGroupWarps; }
};

// Rows of sums in shared memory that a lane adds to, four columns of each: number i is `pitch` sums
// behind number i - 1, and row m + i * step of the output. Its scale is in lane i.
struct SumRows {
  int* sums;
  int pitch, count;
  std::int64_t m, step;
};

struct NoAddend {
  // The kernels' arguments, with what the addend has beside them.
  using TileArgs = sm90::TileArgs;
  using FewRowsArgs = sm90::FewRowsArgs;
  // Whether there is anything to add: sums then meet their rows' scales first, and become float32.
  static constexpr bool kAdds = false;
  // Warps that bring what is added, beside those that multiply and the thread that copies.
  static constexpr int kWarps = 0;

  // Of tiles: registers of a thread that copies or brings, and of one that multiplies.
  static constexpr int kCopyRegisters = 40, kGroupRegisters = 232;
  // Warps beside a group's that give each stage back.
  static __device__ __forceinline__ int stage_readers(const TileArgs&) { return 0; }
  // What a group adds to the tiles that it has after one another.
  struct Tiles {
    // Whether it needs the tensor cores for that.
    __device__ __forceinline__ bool has_steps() const { return false; }
    // Before a tile, once the one before it is stored.
    __device__ __forceinline__ void begin(const Outputs&, int, std::int64_t) const {}
  };
  // `staging`: the group's shared memory, free while it multiplies.
  static __device__ __forceinline__ Tiles tiles(const TileArgs&, int*, int) { return {}; }

  // Of few rows: shared memory of a block, and of a warp behind the sums.
  static constexpr int kSharedBytes = 0, kWarpBytes = 0;
  // Asks for what belongs to a row, so that it is in the cache when the sums are complete.
  static __device__ __forceinline__ void touch(const FewRowsArgs&, int, std::int64_t) {}
  struct FewRows {};
  static __device__ __forceinline__ FewRows few_rows(const FewRowsArgs&, std::uint8_t*, int,
                                                     std::int64_t, std::uint8_t*) {
    return {};
  }
};

}  // namespace planq::linear::sm90
