// What the integer and the floating tile kernels of sm80 share: the shape of a tile, the copy of an
// operand to shared memory, the load of fragments from there for mma.sync, and the pipelines that
// overlap these.
//
// The words: a stage is what both operands have along k in one slot of shared memory. It holds rows
// in slices of 64 bytes. A chunk is 16 bytes of a row.
#pragma once

#include <cstdint>

#include "cuda/memory_access.cuh"
#include "cuda/mma.cuh"
#include "ops/linear/sm80/args.h"
#include "ops/linear/sm80/epilogue.cuh"

namespace planq::linear {

// --- Tiles -------------------------------------------------------------------------------------

inline constexpr int kSliceBytes = 64;  // along k: two steps of mma.sync
inline constexpr int kSliceSteps = 2;

// A block computes kM x kN outputs, a warp kWarpM x kWarpN. kSlices warps share the same outputs:
// each has kParts slices of every stage for its own. kAsyncStages (in shared memory) and
// kAsyncBlocks (on a multiprocessor) are for operands that are copied asynchronously.
template <int kM_, int kN_, int kWarpM_, int kWarpN_, int kSlices_, int kAsyncStages_,
          int kAsyncBlocks_ = 2, int kParts_ = 1>
struct Tile80 {
  static constexpr int kM = kM_, kN = kN_, kWarpM = kWarpM_, kWarpN = kWarpN_;
  static constexpr int kSlices = kSlices_, kAsyncStages = kAsyncStages_;
  static constexpr int kAsyncBlocks = kAsyncBlocks_, kParts = kParts_;
  static constexpr int kThreads = kM / kWarpM * (kN / kWarpN) * kSlices * cuda::kWarp;
  static constexpr int kDepth = kSliceBytes * kSlices * kParts;  // bytes along k in a stage
  static constexpr int kWeightOffset = kM * kDepth;
  static constexpr int kStageBytes = (kM + kN) * kDepth;
  static constexpr SumShape sums() { return {kN, kM * kN, kSlices, kThreads}; }
  static constexpr int kSumsBytes = kM * kN * kSlices * 4;
};

// The offset of chunk `chunk` of row `row` in a stage of an operand with kRows rows. The chunks of
// a slice are swizzled by row, so that two accesses meet no bank twice: one chunk of eight rows
// (ldmatrix), and the chunks of two rows (the copy).
template <int kRows>
__device__ __forceinline__ std::uint32_t place_of_chunk(int row, int chunk) {
  return chunk / 4 * (kRows * kSliceBytes) + row * kSliceBytes + (chunk % 4 ^ row / 2 % 4) * 16;
}

// --- Copying -----------------------------------------------------------------------------------

// Loads eight bytes from any address. Bytes from number `count` on are 0.
__device__ __forceinline__ uint2 load_bytes(const std::uint8_t* from, int count) {
  std::uint32_t words[2] = {0, 0};
#pragma unroll
  for (int i = 0; i < 8; ++i)
    if (i < count) words[i / 4] |= static_cast<std::uint32_t>(__ldg(from + i)) << i % 4 * 8;
  return make_uint2(words[0], words[1]);
}

// Copies the first `count` of 16 bytes to shared memory, and zeros behind them.
__device__ __forceinline__ void store_bytes(cuda::SharedAddress to, const std::uint8_t* from,
                                            int count) {
  const uint2 first = load_bytes(from, count), second = load_bytes(from + 8, count - 8);
  cuda::store_shared(to, make_uint4(first.x, first.y, second.x, second.y));
}

// An operand whose rows are 16-byte vectors along k, copied with cp.async. A thread copies the same
// chunk of several rows. It copies nothing that does not exist, although cp.async can fill up with
// zeros: it would still be given an address beyond the operand.
template <class Tile, int kRows>
class AsyncOperand {
  static constexpr int kAcross = Tile::kDepth / 16, kStep = Tile::kThreads / kAcross;
  static constexpr int kCopies = kRows / kStep;
  static_assert(kCopies * kStep == kRows && kStep % 8 == 0);

 public:
  // `rows`: those of the tile that exist. `terms`: bytes of a row.
  __device__ __forceinline__ AsyncOperand(const std::uint8_t* data, const OperandLayout& layout,
                                          int rows, int terms, cuda::SharedAddress shared)
      : step_(layout.stride * kStep) {
    const int row = static_cast<int>(threadIdx.x) / kAcross;
    const int chunk = static_cast<int>(threadIdx.x) % kAcross;
    from_ = data + row * layout.stride + chunk * 16;
    rows_ = rows - row;
    terms_ = terms - chunk * 16;
    to_ = shared + place_of_chunk<kRows>(row, chunk);
  }
  // Copies the next stage to the slot at this offset.
  __device__ __forceinline__ void copy(std::uint32_t slot) {
    if (terms_ > 0 && terms_ < 16) {
      copy_end(slot);
    } else {
#pragma unroll
      for (int i = 0; i < kCopies; ++i) {
        if (exists(i))
          cuda::copy_async(place(i, slot), from_ + i * step_);
        else
          cuda::store_shared(place(i, slot), make_uint4(0, 0, 0, 0));
      }
    }
    from_ += Tile::kDepth;
    terms_ -= Tile::kDepth;
  }

 private:
  __device__ __forceinline__ bool exists(int i) const { return terms_ > 0 && i * kStep < rows_; }
  __device__ __forceinline__ cuda::SharedAddress place(int i, std::uint32_t slot) const {
    return to_ + slot + i * (kStep * kSliceBytes);
  }
  // For rows that end within the 16 bytes: the memory may end there, too.
  __device__ __forceinline__ void copy_end(std::uint32_t slot) const {
#pragma unroll 1
    for (int i = 0; i < kCopies; ++i) {
      store_bytes(place(i, slot), from_ + i * step_, exists(i) ? terms_ : 0);
    }
  }

  const std::uint8_t* from_;
  std::int64_t step_;
  std::int32_t rows_, terms_;
  cuda::SharedAddress to_;
};

// --- Multiplying -------------------------------------------------------------------------------

// The outputs of a warp, and where their operands lie in a slot.
template <class Tile>
class WarpTile {
 public:
  static constexpr int kBlocksM = Tile::kWarpM / 16, kBlocksN = Tile::kWarpN / 8;

  template <class T>
  using Sums = T[kBlocksM][kBlocksN][4];
  // What a step multiplies: operands a of mma.sync, and pairs of its operands b.
  struct Fragments {
    std::uint32_t a[kBlocksM][4], b[kBlocksN / 2][4];
  };

  __device__ __forceinline__ explicit WarpTile(cuda::SharedAddress shared)
      : lane_(static_cast<int>(threadIdx.x) % cuda::kWarp) {
    int warp = static_cast<int>(threadIdx.x) / cuda::kWarp;
    row_ = warp % kWarpsM * Tile::kWarpM;
    warp /= kWarpsM;
    column_ = warp % kWarpsN * Tile::kWarpN;
    slice_ = warp / kWarpsN;
    static_assert(Tile::kSlices == 1 || Tile::kParts == 1);
    // ldmatrix loads four matrices of 8 rows by 16 bytes. Of a these are rows 0 to 7 and 8 to 15 of
    // the first 16 bytes, then of the next 16. Of b they are the first and the next 16 bytes of
    // rows 0 to 7, then of rows 8 to 15.
    const int row = row_ + lane_ % 16, column = column_ + lane_ % 8 + lane_ / 16 * 8;
    input_ = shared + place_of_chunk<Tile::kM>(row, slice_ * 4 + lane_ / 16);
    weight_ =
        shared + Tile::kWeightOffset + place_of_chunk<Tile::kN>(column, slice_ * 4 + lane_ / 8 % 2);
  }

  // Loads a step of the stage in this slot.
  __device__ __forceinline__ void load(std::uint32_t slot, std::uint32_t step,
                                       Fragments& fragments) const {
    load_input(slot, step, fragments);
    load_weight(slot, step, fragments);
  }
  __device__ __forceinline__ void load_input(std::uint32_t slot, std::uint32_t step,
                                             Fragments& fragments) const {
    const auto from = in_step<Tile::kM>(input_ + slot, step);
#pragma unroll
    for (int i = 0; i < kBlocksM; ++i)
      cuda::load_matrices(fragments.a[i], from + i * (16 * kSliceBytes));
  }
  __device__ __forceinline__ void load_weight(std::uint32_t slot, std::uint32_t step,
                                              Fragments& fragments) const {
    const auto from = in_step<Tile::kN>(weight_ + slot, step);
#pragma unroll
    for (int j = 0; j < kBlocksN / 2; ++j)
      cuda::load_matrices(fragments.b[j], from + j * (16 * kSliceBytes));
  }

  // Calls visit(sums, a, b0, b1) for each mma.sync of a step.
  template <class T, class Visit>
  static __device__ __forceinline__ void each_block(Sums<T>& sums, const Fragments& fragments,
                                                    const Visit& visit) {
#pragma unroll
    for (int i = 0; i < kBlocksM; ++i)
#pragma unroll
      for (int j = 0; j < kBlocksN; ++j)
        visit(sums[i][j], fragments.a[i], fragments.b[j / 2][j % 2 * 2],
              fragments.b[j / 2][j % 2 * 2 + 1]);
  }

  // Calls visit(row, column, first, second) for the sums of the lane, which are pairs in
  // neighbouring columns.
  template <class T, class Visit>
  __device__ __forceinline__ void each_pair(const Sums<T>& sums, const Visit& visit) const {
#pragma unroll
    for (int i = 0; i < kBlocksM; ++i)
#pragma unroll
      for (int j = 0; j < kBlocksN; ++j) {
        const int row = row_of(i), column = column_of(j);
        visit(row, column, sums[i][j][0], sums[i][j][1]);
        visit(row + 8, column, sums[i][j][2], sums[i][j][3]);
      }
  }
  // The first of the lane's two rows in a block of 16 rows. The other is eight rows below.
  __device__ __forceinline__ int row_of(int block) const { return row_ + block * 16 + lane_ / 4; }
  // The first of the lane's two columns in a block of eight columns.
  __device__ __forceinline__ int column_of(int block) const {
    return column_ + block * 8 + lane_ % 4 * 2;
  }
  __device__ __forceinline__ int slice() const { return slice_; }

 protected:
  std::int32_t lane_, row_, column_, slice_;  // the warp's first row and column

 private:
  // The offset of a step from that of step 0. Step 1 is two chunks further: since chunks are
  // swizzled, this bit alone changes. Steps 2 and on are in the next slice.
  template <int kRows>
  static __device__ __forceinline__ cuda::SharedAddress in_step(cuda::SharedAddress place,
                                                                std::uint32_t step) {
    return (place ^ step % kSliceSteps * 32) + step / kSliceSteps * (kRows * kSliceBytes);
  }
  static constexpr int kWarpsM = Tile::kM / Tile::kWarpM;
  static constexpr int kWarpsN = Tile::kN / Tile::kWarpN;

  cuda::SharedAddress input_, weight_;
};

// The tile of a block, in one of the gemms of a batch.
template <class Tile>
struct Sm80Block {
  Gemm gemm;
  OutputTile tile;

  __device__ __forceinline__ explicit Sm80Block(const Sm80Args& args)
      : gemm(args.gemm.at(args.first_gemm + blockIdx.x / args.tiles)) {
    // Blocks with neighbouring numbers run at the same time and should share operands in the L2
    // cache. So tiles are numbered in bands of eight rows of tiles, and column by column within a
    // band.
    constexpr std::uint32_t kTogether = 8;
    const std::uint32_t index = blockIdx.x % args.tiles;
    const std::uint32_t across = args.tiles_across, down = args.tiles / across;
    const std::uint32_t first = index / (kTogether * across) * kTogether;
    const std::uint32_t inside = index - first * across, high = min(down - first, kTogether);
    tile.row = std::int64_t{first + inside % high} * Tile::kM;
    tile.column = std::int64_t{inside / high} * Tile::kN;
    tile.rows = static_cast<std::int32_t>(min(gemm.m - tile.row, std::int64_t{Tile::kM}));
    tile.columns = static_cast<std::int32_t>(min(gemm.n - tile.column, std::int64_t{Tile::kN}));
  }
};

// --- Stages ------------------------------------------------------------------------------------

// How many stages of kDepth so many terms make.
template <int kDepth>
__device__ __forceinline__ int stages_of(std::int32_t terms) {
  return terms / kDepth + (terms % kDepth != 0);
}

// Both operands are copied asynchronously, kStages - 1 stages ahead. Calls multiply(stage, its
// slot).
template <class Tile, class Multiply>
__device__ __forceinline__ void copy_and_multiply(AsyncOperand<Tile, Tile::kM>& input,
                                                  AsyncOperand<Tile, Tile::kN>& weight, int stages,
                                                  const Multiply& multiply) {
  constexpr int kStages = Tile::kAsyncStages;
  const auto copy = [&](int stage) {
    if (stage < stages) {
      const std::uint32_t slot = stage % kStages * Tile::kStageBytes;
      input.copy(slot);
      weight.copy(slot);
    }
    cuda::end_copy_group();
  };
#pragma unroll 1
  for (int stage = 0; stage < kStages - 1; ++stage) copy(stage);
#pragma unroll 1
  for (int stage = 0; stage < stages; ++stage) {
    cuda::wait_for_copy_groups<kStages - 2>();
    __syncthreads();
    copy(stage + kStages - 1);
    multiply(stage, stage % kStages * Tile::kStageBytes);
  }
  cuda::wait_for_copy_groups<0>();
}

// Both operands come through registers, with two slots: a stage is loaded while the one before it
// is multiplied, then stored in the other slot. `terms`: of a stage. Calls multiply(stage, its
// slot).
template <class Tile, class Input, class Weight, class Multiply>
__device__ __forceinline__ void fetch_and_multiply(Input& input, Weight& weight, int stages,
                                                   int terms, const Multiply& multiply) {
#pragma unroll 1
  for (int stage = -1; stage < stages; ++stage) {
    const bool more = stage + 1 < stages;
    const std::uint32_t slot = (stage + 1) % 2 * Tile::kStageBytes;
    if (more) {
      input.fetch((stage + 1) * terms);
      weight.fetch((stage + 1) * terms);
    }
    if (stage >= 0) {
      __syncthreads();
      multiply(stage, Tile::kStageBytes - slot);
    }
    if (more) {
      input.store(slot);
      weight.store(slot);
    }
  }
}

}  // namespace planq::linear
