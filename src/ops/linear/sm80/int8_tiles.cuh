// Integer gemms on the tensor cores of every GPU from sm_80 on (mma.sync), for any operands.
//
// A block computes a tile of outputs. Both operands of the tile come to shared memory stage by
// stage, as rows of bytes (tile.cuh); warps load fragments from there and multiply.
//
// There are two kinds of kernels. In multiply_async, both operands have rows of 16-byte vectors
// along k, which are copied asynchronously (AsyncOperand). In multiply_any, operands come through
// registers in pieces of eight codes (AnyOperand): it takes transposed operands, 4-bit codes, and
// rows that begin anywhere. Codes beyond k or beyond the last row are 0 in shared memory.
#pragma once

#include <cstdint>
#include <type_traits>

#include "math/nibbles.h"
#include "ops/linear/sm80/tile.cuh"

namespace planq::linear {

// --- Loading -----------------------------------------------------------------------------------

// Loads eight bytes from any address, by aligned words. The words reach beyond the eight bytes.
__device__ __forceinline__ uint2 load_across_words(const std::uint8_t* from) {
  const int past = cuda::misalignment<4>(from);
  const auto* words = reinterpret_cast<const std::uint32_t*>(from - past);
  const std::uint32_t first = __ldg(words), second = __ldg(words + 1);
  const std::uint32_t third = past == 0 ? 0 : __ldg(words + 2);
  return make_uint2(__funnelshift_r(first, second, past * 8),
                    __funnelshift_r(second, third, past * 8));
}

// Unpacks `count` 4-bit codes, the nibbles of `packed`, to a byte each.
__device__ __forceinline__ uint2 unpacked(std::uint32_t packed, int count, bool extended) {
  std::uint32_t low = math::low_nibbles(packed), high = math::high_nibbles(packed);
  // With an odd number of codes, the last byte has a high nibble that is no code.
  if (count < 8 && count % 2 != 0) high &= (std::uint32_t{1} << count / 2 * 8) - 1;
  if (extended) {
    low = math::nibbles_extended(low);
    high = math::nibbles_extended(high);
  }
  return make_uint2(__byte_perm(low, high, 0x5140), __byte_perm(low, high, 0x7362));
}

// Loads codes `at` to `at` + 7 of a line with `limit` codes, to a byte each. Codes beyond the limit
// are 0. `inside`: there is memory of the operand before the line's code 0.
__device__ __forceinline__ uint2 load_codes(const OperandLayout& layout, const std::uint8_t* line,
                                            int at, int limit, bool inside) {
  const int count = limit - at;
  if (count <= 0) return make_uint2(0, 0);
  const std::uint8_t* from = line + (layout.packed ? at / 2 : at);
  const int bytes = layout.packed ? count / 2 + count % 2 : count;
  uint2 words;
  if (layout.aligned && count >= 8) {
    if (!layout.packed) return __ldg(reinterpret_cast<const uint2*>(from));
    words.x = __ldg(reinterpret_cast<const std::uint32_t*>(from));
  } else if ((inside || at > 0) && bytes >= 12) {
    words = load_across_words(from);
  } else {
    words = load_bytes(from, bytes);
  }
  return layout.packed ? unpacked(words.x, count, layout.extended) : words;
}

// Transposes a 4 x 4 matrix of bytes: byte i of the four words becomes word i.
__device__ __forceinline__ void transpose_bytes(std::uint32_t a, std::uint32_t b, std::uint32_t c,
                                                std::uint32_t d, std::uint32_t (&rows)[4]) {
  const std::uint32_t ab = __byte_perm(a, b, 0x5140), cd = __byte_perm(c, d, 0x5140);
  const std::uint32_t ab_high = __byte_perm(a, b, 0x7362), cd_high = __byte_perm(c, d, 0x7362);
  rows[0] = __byte_perm(ab, cd, 0x5410);
  rows[1] = __byte_perm(ab, cd, 0x7632);
  rows[2] = __byte_perm(ab_high, cd_high, 0x5410);
  rows[3] = __byte_perm(ab_high, cd_high, 0x7632);
}

// An operand that comes through registers, in pieces of eight codes. If its rows are along k, a
// piece is part of a row, and threads side by side have neighbouring pieces. If it is transposed, a
// piece is eight rows of one term, and a thread has four terms of them, which it transposes. Then
// the lanes of a warp divide both rows and terms, so that neither the loads nor the stores of a
// warp are spread too far.
template <class Tile, int kRows>
class AnyOperand {
  static constexpr int kPieces = kRows * Tile::kDepth / 8 / Tile::kThreads;
  static constexpr int kAcross = Tile::kDepth / 8, kStep = Tile::kThreads / kAcross;
  static constexpr int kGroups = kRows / 8, kLaneGroups = kGroups < 4 ? kGroups : 4;
  static constexpr int kLaneQuads = cuda::kWarp / kLaneGroups, kWarpGroups = kGroups / kLaneGroups;
  static_assert(kPieces % 4 == 0 && kPieces * Tile::kThreads * 8 == kRows * Tile::kDepth);

 public:
  __device__ __forceinline__ AnyOperand(const std::uint8_t* data, const OperandLayout& layout,
                                        int rows, int terms, bool inside, std::uint32_t shared)
      : data_(data),
        layout_(layout),
        rows_(rows),
        terms_(terms),
        shared_(shared),
        inside_(inside) {}

  // Begins to load the stage that begins at term `first`.
  __device__ __forceinline__ void fetch(int first) {
#pragma unroll
    for (int i = 0; i < kPieces; ++i) {
      const bool transposed = layout_.transposed;
      const int line = transposed ? first + quad(i / 4) * 4 + i % 4 : row(i);
      const int at = transposed ? group(i / 4) * 8 : first + across() * 8;
      const bool exists = line < (transposed ? terms_ : rows_);
      pieces_[i] = make_uint2(0, 0);
      if (exists)
        pieces_[i] = load_codes(layout_, data_ + line * layout_.stride, at,
                                transposed ? rows_ : terms_, inside_);
    }
  }
  // Stores what was loaded in the slot at this offset.
  __device__ __forceinline__ void store(std::uint32_t slot) const {
    const std::uint32_t base = shared_ + slot;
    if (!layout_.transposed) {
#pragma unroll
      for (int i = 0; i < kPieces; ++i)
        cuda::store_shared(base + place_of_chunk<kRows>(row(i), across() / 2) + across() % 2 * 8,
                           pieces_[i]);
      return;
    }
#pragma unroll
    for (int unit = 0; unit < kPieces / 4; ++unit) {
      const uint2* four = pieces_ + unit * 4;
      std::uint32_t words[2][4];
      transpose_bytes(four[0].x, four[1].x, four[2].x, four[3].x, words[0]);
      transpose_bytes(four[0].y, four[1].y, four[2].y, four[3].y, words[1]);
#pragma unroll
      for (int i = 0; i < 8; ++i)
        cuda::store_shared(
            base + place_of_chunk<kRows>(group(unit) * 8 + i, quad(unit) / 4) + quad(unit) % 4 * 4,
            words[i / 4][i % 4]);
    }
  }

 private:
  static __device__ __forceinline__ int thread() { return static_cast<int>(threadIdx.x); }
  static __device__ __forceinline__ int row(int piece) {
    return thread() / kAcross + piece * kStep;
  }
  static __device__ __forceinline__ int across() { return thread() % kAcross; }
  static __device__ __forceinline__ int warp(int unit) {
    return (thread() + unit * Tile::kThreads) / cuda::kWarp;
  }
  static __device__ __forceinline__ int lane() { return thread() % cuda::kWarp; }
  static __device__ __forceinline__ int group(int unit) {
    return lane() % kLaneGroups + warp(unit) % kWarpGroups * kLaneGroups;
  }
  static __device__ __forceinline__ int quad(int unit) {
    return lane() / kLaneGroups + warp(unit) / kWarpGroups * kLaneQuads;
  }

  const std::uint8_t* data_;
  const OperandLayout& layout_;
  std::int32_t rows_, terms_;
  std::uint32_t shared_;
  bool inside_;
  uint2 pieces_[kPieces];
};

// --- Multiplying -------------------------------------------------------------------------------

// The sums of a warp.
template <class Tile>
class WarpSums {
  using Place = WarpTile<Tile>;

 public:
  __device__ __forceinline__ explicit WarpSums(std::uint32_t shared) : place_(shared) {}

  // Multiplies the stage in this slot and adds it to the sums.
  template <bool kUnsignedInput, bool kUnsignedWeight>
  __device__ __forceinline__ void add(std::uint32_t slot) {
#pragma unroll
    for (std::uint32_t step = 0; step < kSliceSteps; ++step) {
      typename Place::Fragments fragments;
      place_.load(slot, step, fragments);
      Place::each_block(sums_, fragments, [](auto& sums, const auto& a, auto b0, auto b1) {
        cuda::multiply_add<kUnsignedInput, kUnsignedWeight>(sums, a, b0, b1);
      });
    }
  }
  __device__ __forceinline__ void add(std::uint32_t slot, Signs signs) {
    switch (signs) {
      case Signs::BothSigned:
        return add<false, false>(slot);
      case Signs::UnsignedInput:
        return add<true, false>(slot);
      case Signs::UnsignedWeight:
        return add<false, true>(slot);
      case Signs::BothUnsigned:
        return add<true, true>(slot);
    }
  }

  __device__ __forceinline__ void store(std::int32_t* sums) const {
    std::int32_t* plane = sums + place_.slice() * Tile::sums().plane;
    place_.each_pair(sums_, [&](int row, int column, std::int32_t first, std::int32_t second) {
      *reinterpret_cast<int2*>(plane + Tile::sums().place(row, column)) = make_int2(first, second);
    });
  }

 private:
  Place place_;
  typename Place::template Sums<std::int32_t> sums_ = {};
};

// Where row `row` of an operand begins. If the operand is transposed, rows are neighbouring codes.
__device__ __forceinline__ const std::uint8_t* rows_from(const GemmOperand& operand,
                                                         const OperandLayout& layout,
                                                         std::int64_t row) {
  if (!layout.transposed) return operand.data + row * layout.stride;
  return operand.data + (layout.packed ? row / 2 : row);
}

extern __shared__ __align__(128) std::uint8_t sm80_shared[];

// Called after the last stage: sums go through shared memory to the outputs.
template <class Addend, class Tile>
__device__ __forceinline__ void finish_tile(const Sm80Args& args, const Sm80Block<Tile>& block,
                                            const WarpSums<Tile>& warp) {
  auto* sums = reinterpret_cast<std::int32_t*>(sm80_shared);
  __syncthreads();
  warp.store(sums);
  __syncthreads();
  store_tile<Addend>(block.gemm, block.tile, Tile::sums(), sums, args.stores_vectors);
}

template <class Tile, class Addend>
__global__ void __launch_bounds__(Tile::kThreads, Tile::kAsyncBlocks)
    multiply_async(const __grid_constant__ Sm80Args args) {
  const Sm80Block<Tile> block(args);
  const Gemm& gemm = block.gemm;
  const auto terms = static_cast<std::int32_t>(gemm.k);
  const std::uint32_t shared = cuda::shared_address(sm80_shared);
  AsyncOperand<Tile, Tile::kM> input(rows_from(gemm.input, args.input, block.tile.row), args.input,
                                     block.tile.rows, terms, shared);
  AsyncOperand<Tile, Tile::kN> weight(rows_from(gemm.weight, args.weight, block.tile.column),
                                      args.weight, block.tile.columns, terms,
                                      shared + Tile::kWeightOffset);
  WarpSums<Tile> warp(shared);
  copy_and_multiply<Tile>(input, weight, stages_of<Tile::kDepth>(terms),
                          [&](int, std::uint32_t slot) { warp.add(slot, args.signs); });
  finish_tile<Addend>(args, block, warp);
}

template <class Tile, class Addend>
__global__ void __launch_bounds__(Tile::kThreads, 1)
    multiply_any(const __grid_constant__ Sm80Args args) {
  const Sm80Block<Tile> block(args);
  const Gemm& gemm = block.gemm;
  const auto terms = static_cast<std::int32_t>(gemm.k);
  const std::uint32_t shared = cuda::shared_address(sm80_shared);
  const auto left = [](std::int64_t rows, std::int64_t first) {
    return static_cast<std::int32_t>(min(rows - first, std::int64_t{1} << 30));
  };
  AnyOperand<Tile, Tile::kM> input(rows_from(gemm.input, args.input, block.tile.row), args.input,
                                   left(gemm.m, block.tile.row), terms,
                                   args.input.transposed && block.tile.row > 0, shared);
  AnyOperand<Tile, Tile::kN> weight(rows_from(gemm.weight, args.weight, block.tile.column),
                                    args.weight, left(gemm.n, block.tile.column), terms,
                                    args.weight.transposed && block.tile.column > 0,
                                    shared + Tile::kWeightOffset);
  WarpSums<Tile> warp(shared);
  fetch_and_multiply<Tile>(input, weight, stages_of<Tile::kDepth>(terms), Tile::kDepth,
                           [&](int, std::uint32_t slot) { warp.add(slot, args.signs); });
  finish_tile<Addend>(args, block, warp);
}

}  // namespace planq::linear
