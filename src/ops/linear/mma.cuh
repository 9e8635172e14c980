// Integer products on the tensor cores of every GPU from sm_80 on (mma.sync). A block computes a
// tile of outputs. Both sides of the tile come to shared memory in stages of K, as rows of 64 bytes
// of codes, one slice of K after another; warps read them from there and add up.
//
// Sides whose rows are 16-byte vectors along K are copied asynchronously (AsyncSide). All others,
// transposed ones, 4-bit codes and rows that begin anywhere, come through registers in pieces of
// eight codes (AnySide). Codes that do not exist, beyond K or beyond the last row, are 0 in shared
// memory.
#pragma once

#include <cstdint>
#include <type_traits>

#include "cuda/memory_access.cuh"
#include "cuda/mma.cuh"
#include "math/nibbles.h"
#include "ops/linear/mma_args.h"
#include "ops/linear/tile_output.cuh"

namespace planq::linear {

// --- Tiles -------------------------------------------------------------------------------------

inline constexpr int kSliceBytes = 64;  // of K: two steps of mma.sync

// kM x kN outputs of a block, kWarpM x kWarpN of a warp; kSlices warps share the same outputs, each
// with a slice of K of its own in every stage. kAsyncStages and kAsyncBlocks, of a multiprocessor,
// are for sides that are copied.
template <int kM_, int kN_, int kWarpM_, int kWarpN_, int kSlices_, int kAsyncStages_,
          int kAsyncBlocks_ = 2>
struct MmaTile {
  static constexpr int kM = kM_, kN = kN_, kWarpM = kWarpM_, kWarpN = kWarpN_;
  static constexpr int kSlices = kSlices_, kAsyncStages = kAsyncStages_;
  static constexpr int kAsyncBlocks = kAsyncBlocks_;
  static constexpr int kThreads = kM / kWarpM * (kN / kWarpN) * kSlices * cuda::kWarp;
  static constexpr int kDepth = kSliceBytes * kSlices;  // bytes of K in a stage
  static constexpr int kWeightOffset = kM * kDepth;
  static constexpr int kStageBytes = (kM + kN) * kDepth;
  static constexpr SumShape sums() { return {kN, kM * kN, kSlices, kThreads}; }
  static constexpr int kSumsBytes = kM * kN * kSlices * 4;
};

// Where chunk `chunk` of 16 bytes of a row is in a side with kRows rows. The chunks of a slice
// change places so that neither eight rows of one chunk nor eight chunks of two rows meet in a
// bank.
template <int kRows>
__device__ __forceinline__ std::uint32_t place_of_chunk(int row, int chunk) {
  return chunk / 4 * (kRows * kSliceBytes) + row * kSliceBytes + (chunk % 4 ^ row / 2 % 4) * 16;
}

// --- Loading -----------------------------------------------------------------------------------

// Eight bytes from any address, 0 from number `count` on.
__device__ __forceinline__ uint2 load_bytes(const std::uint8_t* from, int count) {
  std::uint32_t words[2] = {0, 0};
#pragma unroll
  for (int i = 0; i < 8; ++i)
    if (i < count) words[i / 4] |= static_cast<std::uint32_t>(__ldg(from + i)) << i % 4 * 8;
  return make_uint2(words[0], words[1]);
}

// Copies of a thread, 16 bytes each: the same chunk of several rows. Only bytes that exist are
// asked for: an asynchronous copy that is told to fill up with zeros is still given an address
// of 16.
template <class Tile, int kRows>
class AsyncSide {
  static constexpr int kAcross = Tile::kDepth / 16, kStep = Tile::kThreads / kAcross;
  static constexpr int kCopies = kRows / kStep;
  static_assert(kCopies * kStep == kRows && kStep % 8 == 0);

 public:
  // `rows`: those of the tile that exist.
  __device__ __forceinline__ AsyncSide(const std::uint8_t* data, const MmaSide& side, int rows,
                                       int terms, std::uint32_t shared)
      : step_(side.stride * kStep) {
    const int row = static_cast<int>(threadIdx.x) / kAcross;
    const int chunk = static_cast<int>(threadIdx.x) % kAcross;
    from_ = data + row * side.stride + chunk * 16;
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
  __device__ __forceinline__ std::uint32_t place(int i, std::uint32_t slot) const {
    return to_ + slot + i * (kStep * kSliceBytes);
  }
  // Where rows end within the 16 bytes, which may be where the memory ends.
  __device__ __forceinline__ void copy_end(std::uint32_t slot) const {
#pragma unroll 1
    for (int i = 0; i < kCopies; ++i) {
      const std::uint8_t* from = from_ + i * step_;
      const int bytes = exists(i) ? terms_ : 0;
      const uint2 first = load_bytes(from, bytes), second = load_bytes(from + 8, bytes - 8);
      cuda::store_shared(place(i, slot), make_uint4(first.x, first.y, second.x, second.y));
    }
  }

  const std::uint8_t* from_;
  std::int64_t step_;
  std::int32_t rows_, terms_;
  std::uint32_t to_;
};

// Eight bytes in the midst of a line: the words around them may be read.
__device__ __forceinline__ uint2 load_across_words(const std::uint8_t* from) {
  const int past = cuda::misalignment<4>(from);
  const auto* words = reinterpret_cast<const std::uint32_t*>(from - past);
  const std::uint32_t first = __ldg(words), second = __ldg(words + 1);
  const std::uint32_t third = past == 0 ? 0 : __ldg(words + 2);
  return make_uint2(__funnelshift_r(first, second, past * 8),
                    __funnelshift_r(second, third, past * 8));
}

// The first four bytes of `packed`, `count` codes, a byte each.
__device__ __forceinline__ uint2 unpacked(std::uint32_t packed, int count, bool extended) {
  std::uint32_t low = math::low_nibbles(packed), high = math::high_nibbles(packed);
  // An odd number of codes leaves a nibble that is none.
  if (count < 8 && count % 2 != 0) high &= (std::uint32_t{1} << count / 2 * 8) - 1;
  if (extended) {
    low = math::nibbles_extended(low);
    high = math::nibbles_extended(high);
  }
  return make_uint2(__byte_perm(low, high, 0x5140), __byte_perm(low, high, 0x7362));
}

// Codes `at` ... `at` + 7 of a line with `limit` codes, a byte each, 0 where there are none.
// `inside`: the line goes on before its code 0.
__device__ __forceinline__ uint2 load_codes(const MmaSide& side, const std::uint8_t* line, int at,
                                            int limit, bool inside) {
  const int count = limit - at;
  if (count <= 0) return make_uint2(0, 0);
  const std::uint8_t* from = line + (side.packed ? at / 2 : at);
  const int bytes = side.packed ? count / 2 + count % 2 : count;
  uint2 words;
  if (side.aligned && count >= 8) {
    if (!side.packed) return __ldg(reinterpret_cast<const uint2*>(from));
    words.x = __ldg(reinterpret_cast<const std::uint32_t*>(from));
  } else if ((inside || at > 0) && bytes >= 12) {
    words = load_across_words(from);
  } else {
    words = load_bytes(from, bytes);
  }
  return side.packed ? unpacked(words.x, count, side.extended) : words;
}

// Byte i of four words as word i.
__device__ __forceinline__ void transpose_bytes(std::uint32_t a, std::uint32_t b, std::uint32_t c,
                                                std::uint32_t d, std::uint32_t (&rows)[4]) {
  const std::uint32_t ab = __byte_perm(a, b, 0x5140), cd = __byte_perm(c, d, 0x5140);
  const std::uint32_t ab_high = __byte_perm(a, b, 0x7362), cd_high = __byte_perm(c, d, 0x7362);
  rows[0] = __byte_perm(ab, cd, 0x5410);
  rows[1] = __byte_perm(ab, cd, 0x7632);
  rows[2] = __byte_perm(ab_high, cd_high, 0x5410);
  rows[3] = __byte_perm(ab_high, cd_high, 0x7632);
}

// Pieces of a thread, eight codes each. Along K they are pieces of rows, with neighbouring threads
// at neighbouring pieces. Of a transposed side four pieces are eight rows of four terms, and a warp
// has few terms of few rows, so that neither its loads nor its stores are too far apart.
template <class Tile, int kRows>
class AnySide {
  static constexpr int kPieces = kRows * Tile::kDepth / 8 / Tile::kThreads;
  static constexpr int kAcross = Tile::kDepth / 8, kStep = Tile::kThreads / kAcross;
  static constexpr int kGroups = kRows / 8, kLaneGroups = kGroups < 4 ? kGroups : 4;
  static constexpr int kLaneQuads = cuda::kWarp / kLaneGroups, kWarpGroups = kGroups / kLaneGroups;
  static_assert(kPieces % 4 == 0 && kPieces * Tile::kThreads * 8 == kRows * Tile::kDepth);

 public:
  __device__ __forceinline__ AnySide(const std::uint8_t* data, const MmaSide& side, int rows,
                                     int terms, bool inside, std::uint32_t shared)
      : data_(data), side_(side), rows_(rows), terms_(terms), shared_(shared), inside_(inside) {}

  // Begins to load the stage that begins at this term.
  __device__ __forceinline__ void fetch(int first) {
#pragma unroll
    for (int i = 0; i < kPieces; ++i) {
      const bool transposed = side_.transposed;
      const int line = transposed ? first + quad(i / 4) * 4 + i % 4 : row(i);
      const int at = transposed ? group(i / 4) * 8 : first + across() * 8;
      const bool exists = line < (transposed ? terms_ : rows_);
      pieces_[i] = make_uint2(0, 0);
      if (exists)
        pieces_[i] = load_codes(side_, data_ + line * side_.stride, at, transposed ? rows_ : terms_,
                                inside_);
    }
  }
  // Stores what was loaded in the slot at this offset.
  __device__ __forceinline__ void store(std::uint32_t slot) const {
    const std::uint32_t base = shared_ + slot;
    if (!side_.transposed) {
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
  const MmaSide& side_;
  std::int32_t rows_, terms_;
  std::uint32_t shared_;
  bool inside_;
  uint2 pieces_[kPieces];
};

// --- Multiplying -------------------------------------------------------------------------------

// The sums of a warp, and where its rows are in a slot.
template <class Tile>
class WarpSums {
  static constexpr int kBlocksM = Tile::kWarpM / 16, kBlocksN = Tile::kWarpN / 8;
  static constexpr int kWarpsM = Tile::kM / Tile::kWarpM;
  static constexpr int kWarpsN = Tile::kN / Tile::kWarpN;

 public:
  __device__ __forceinline__ explicit WarpSums(std::uint32_t shared)
      : lane_(static_cast<int>(threadIdx.x) % cuda::kWarp) {
    int warp = static_cast<int>(threadIdx.x) / cuda::kWarp;
    row_ = warp % kWarpsM * Tile::kWarpM;
    warp /= kWarpsM;
    column_ = warp % kWarpsN * Tile::kWarpN;
    slice_ = warp / kWarpsN;
    // Of a, matrices are rows 0 to 7 and 8 to 15 of 16 terms, then of the next 16; of b, 16 terms
    // and the next 16 of rows 0 to 7, then of rows 8 to 15.
    const int row = row_ + lane_ % 16, column = column_ + lane_ % 8 + lane_ / 16 * 8;
    input_ = shared + place_of_chunk<Tile::kM>(row, slice_ * 4 + lane_ / 16);
    weight_ =
        shared + Tile::kWeightOffset + place_of_chunk<Tile::kN>(column, slice_ * 4 + lane_ / 8 % 2);
  }

  // Adds what the stage in a slot gives.
  template <bool kUnsignedInput, bool kUnsignedWeight>
  __device__ __forceinline__ void add(std::uint32_t slot) {
#pragma unroll
    for (std::uint32_t half = 0; half < 2; ++half) {
      std::uint32_t a[kBlocksM][4], b[kBlocksN / 2][4];
      // Two chunks further: the places of chunks differ in that bit alone.
#pragma unroll
      for (int i = 0; i < kBlocksM; ++i)
        cuda::load_matrices(a[i], ((input_ + slot) ^ half * 32) + i * (16 * kSliceBytes));
#pragma unroll
      for (int j = 0; j < kBlocksN / 2; ++j)
        cuda::load_matrices(b[j], ((weight_ + slot) ^ half * 32) + j * (16 * kSliceBytes));
#pragma unroll
      for (int i = 0; i < kBlocksM; ++i)
#pragma unroll
        for (int j = 0; j < kBlocksN; ++j)
          cuda::multiply_add<kUnsignedInput, kUnsignedWeight>(
              sums_[i][j], a[i], b[j / 2][j % 2 * 2], b[j / 2][j % 2 * 2 + 1]);
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
    std::int32_t* plane = sums + slice_ * Tile::sums().plane;
#pragma unroll
    for (int i = 0; i < kBlocksM; ++i)
#pragma unroll
      for (int j = 0; j < kBlocksN; ++j) {
        const int row = row_ + i * 16 + lane_ / 4, column = column_ + j * 8 + lane_ % 4 * 2;
        const auto pair = [&](int below, int first) {
          *reinterpret_cast<int2*>(plane + Tile::sums().place(row + below, column)) =
              make_int2(sums_[i][j][first], sums_[i][j][first + 1]);
        };
        pair(0, 0);
        pair(8, 2);
      }
  }

 private:
  std::int32_t lane_, row_, column_, slice_;
  std::uint32_t input_, weight_;
  std::int32_t sums_[kBlocksM][kBlocksN][4] = {};
};

// A tile of one of the products of a batch.
template <class Tile>
struct MmaBlock {
  Product product;
  OutputTile tile;

  __device__ __forceinline__ explicit MmaBlock(const MmaArgs& args)
      : product(args.product.at(args.first_product + blockIdx.x / args.tiles)) {
    // Blocks that run at the same time share rows of the input or of the weight: eight rows of
    // tiles together, one column after another.
    constexpr std::uint32_t kTogether = 8;
    const std::uint32_t index = blockIdx.x % args.tiles;
    const std::uint32_t across = args.tiles_across, down = args.tiles / across;
    const std::uint32_t first = index / (kTogether * across) * kTogether;
    const std::uint32_t inside = index - first * across, high = min(down - first, kTogether);
    tile.row = std::int64_t{first + inside % high} * Tile::kM;
    tile.column = std::int64_t{inside / high} * Tile::kN;
    tile.rows = static_cast<std::int32_t>(min(product.m - tile.row, std::int64_t{Tile::kM}));
    tile.columns = static_cast<std::int32_t>(min(product.n - tile.column, std::int64_t{Tile::kN}));
  }
};

// The first code of a side's rows from `row` on. Rows of a transposed side are neighbouring codes.
__device__ __forceinline__ const std::uint8_t* rows_from(const Factor& factor, const MmaSide& side,
                                                         std::int64_t row) {
  if (!side.transposed) return factor.data + row * side.stride;
  return factor.data + (side.packed ? row / 2 : row);
}

extern __shared__ __align__(128) std::uint8_t mma_shared[];

// After a product's last stage: through shared memory to the outputs.
template <class Tile>
__device__ __forceinline__ void finish_tile(const MmaArgs& args, const MmaBlock<Tile>& block,
                                            const WarpSums<Tile>& warp) {
  auto* sums = reinterpret_cast<std::int32_t*>(mma_shared);
  __syncthreads();
  warp.store(sums);
  __syncthreads();
  store_tile(block.product, block.tile, Tile::sums(), sums, args.stores_vectors);
}

template <class Tile>
__global__ void __launch_bounds__(Tile::kThreads, Tile::kAsyncBlocks)
    mma_async(const __grid_constant__ MmaArgs args) {
  constexpr int kStages = Tile::kAsyncStages;
  const MmaBlock<Tile> block(args);
  const Product& product = block.product;
  const auto terms = static_cast<std::int32_t>(product.k);
  const std::uint32_t shared = cuda::shared_address(mma_shared);
  AsyncSide<Tile, Tile::kM> input(rows_from(product.input, args.input, block.tile.row), args.input,
                                  block.tile.rows, terms, shared);
  AsyncSide<Tile, Tile::kN> weight(rows_from(product.weight, args.weight, block.tile.column),
                                   args.weight, block.tile.columns, terms,
                                   shared + Tile::kWeightOffset);
  WarpSums<Tile> warp(shared);
  const int stages = terms / Tile::kDepth + (terms % Tile::kDepth != 0);
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
    warp.add(stage % kStages * Tile::kStageBytes, args.signs);
  }
  cuda::wait_for_copy_groups<0>();
  finish_tile(args, block, warp);
}

// A stage is loaded while the one before it is multiplied, and then stored in the other slot.
template <class Tile>
__global__ void __launch_bounds__(Tile::kThreads, 1) mma_any(const __grid_constant__ MmaArgs args) {
  const MmaBlock<Tile> block(args);
  const Product& product = block.product;
  const auto terms = static_cast<std::int32_t>(product.k);
  const std::uint32_t shared = cuda::shared_address(mma_shared);
  const auto left = [](std::int64_t rows, std::int64_t first) {
    return static_cast<std::int32_t>(min(rows - first, std::int64_t{1} << 30));
  };
  AnySide<Tile, Tile::kM> input(rows_from(product.input, args.input, block.tile.row), args.input,
                                left(product.m, block.tile.row), terms,
                                args.input.transposed && block.tile.row > 0, shared);
  AnySide<Tile, Tile::kN> weight(rows_from(product.weight, args.weight, block.tile.column),
                                 args.weight, left(product.n, block.tile.column), terms,
                                 args.weight.transposed && block.tile.column > 0,
                                 shared + Tile::kWeightOffset);
  WarpSums<Tile> warp(shared);
  const int stages = terms / Tile::kDepth + (terms % Tile::kDepth != 0);
#pragma unroll 1
  for (int stage = -1; stage < stages; ++stage) {
    const bool more = stage + 1 < stages;
    const std::uint32_t slot = (stage + 1) % 2 * Tile::kStageBytes;
    if (more) {
      input.fetch((stage + 1) * Tile::kDepth);
      weight.fetch((stage + 1) * Tile::kDepth);
    }
    if (stage >= 0) {
      __syncthreads();
      warp.add(Tile::kStageBytes - slot, args.signs);
    }
    if (more) {
      input.store(slot);
      weight.store(slot);
    }
  }
  finish_tile(args, block, warp);
}

}  // namespace planq::linear
