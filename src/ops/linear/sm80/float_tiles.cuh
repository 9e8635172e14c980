// Floating gemms on the tensor cores of every GPU from sm_80 on (mma.sync), for any operands.
//
// A block computes a tile of outputs, in slices of 128 terms. Each slice is a chain of mma.sync
// from +0, and is added to the total when it is complete. That is the order of
// Accumulation::TensorSm90, and on sm_90 these are its bits. The tensor cores of other GPUs add up
// a step in other ways. But all tiles have the same steps, so a row has the same bits whatever the
// tile.
//
// There are two kinds of kernels. In the first, both operands consist of 16-byte vectors and are
// copied asynchronously: rows as rows (AsyncOperand), transposed ones as lines of one term each
// (TransposedOperand), which ldmatrix transposes when it loads them. In the second, operands come
// through registers in pieces of eight numbers (PieceOperand). It takes any operands, and 8-bit
// floating codes, which become float16; that is exact. Numbers beyond k or beyond the last row are
// 0 in shared memory.
#pragma once

#include <cstdint>
#include <type_traits>

#include "cuda/pairs.cuh"
#include "math/tensor_core.h"
#include "ops/linear/sm80/tile.cuh"

namespace planq::linear {

// --- Loading -----------------------------------------------------------------------------------

inline constexpr int kPieceTerms = 8;  // 16 bytes of numbers
template <class Tile>
inline constexpr int kStageTerms = Tile::kDepth / 2;

// Pieces. PieceOperand takes a class with two functions, so that a thread starts all its loads
// before it waits for one: load() reads terms `at` to `at` + 7, of which `count` exist, as memory
// has them, and finish() makes eight 16-bit numbers of that.

// 16-bit numbers at any address, with any strides.
class NumberPieces {
 public:
  // Four aligned words, if the row begins at a word. Else five: the first and the last have only
  // half a word of the eight numbers.
  struct Loaded {
    std::uint32_t words[5];
  };

  static __device__ __forceinline__ Loaded load(const GemmOperand& operand,
                                                const OperandLayout& layout, std::int64_t row,
                                                int at, int count) {
    const auto* from = first(operand, row) + std::int64_t{at} * operand.term_stride;
    if (layout.transposed || count < kPieceTerms) return load_each(operand, from, row, count);
    Loaded loaded = {};
    if (layout.aligned) {
      const uint4 vector = __ldg(reinterpret_cast<const uint4*>(from));
      memcpy(loaded.words, &vector, sizeof vector);
      return loaded;
    }
    const int odd = is_odd(operand, row) ? 1 : 0;
    const auto* inner = reinterpret_cast<const std::uint32_t*>(from + odd);
    loaded.words[0] = odd ? std::uint32_t{__ldg(from)} << 16 : __ldg(inner);
#pragma unroll
    for (int i = 0; i < 3; ++i) loaded.words[1 + i] = __ldg(inner + i + 1 - odd);
    if (odd) loaded.words[4] = __ldg(from + kPieceTerms - 1);
    return loaded;
  }
  static __device__ __forceinline__ uint4 finish(const GemmOperand& operand, std::int64_t row,
                                                 const Loaded& loaded) {
    const auto& words = loaded.words;
    if (!is_odd(operand, row)) return make_uint4(words[0], words[1], words[2], words[3]);
    return make_uint4(
        __funnelshift_r(words[0], words[1], 16), __funnelshift_r(words[1], words[2], 16),
        __funnelshift_r(words[2], words[3], 16), __funnelshift_r(words[3], words[4], 16));
  }

 private:
  static __device__ __forceinline__ const std::uint16_t* first(const GemmOperand& operand,
                                                               std::int64_t row) {
    return reinterpret_cast<const std::uint16_t*>(operand.data) + row * operand.row_stride;
  }
  // Whether the row begins in the middle of a word. All of its pieces do then.
  static __device__ __forceinline__ bool is_odd(const GemmOperand& operand, std::int64_t row) {
    return cuda::misalignment<4>(first(operand, row)) != 0;
  }
  static __device__ __forceinline__ Loaded load_each(const GemmOperand& operand,
                                                     const std::uint16_t* from, std::int64_t row,
                                                     int count) {
    std::uint32_t words[4] = {};
#pragma unroll
    for (int i = 0; i < kPieceTerms; ++i)
      if (i < count)
        words[i / 2] |= static_cast<std::uint32_t>(__ldg(from + i * operand.term_stride))
                        << i % 2 * 16;
    if (!is_odd(operand, row)) return {{words[0], words[1], words[2], words[3], 0}};
    return {{words[0] << 16, __funnelshift_r(words[0], words[1], 16),
             __funnelshift_r(words[1], words[2], 16), __funnelshift_r(words[2], words[3], 16),
             words[3] >> 16}};
  }
};

// 8-bit floating codes, as float16. The codes of a row lie side by side.
struct CodePieces {
  using Loaded = uint2;

  static __device__ __forceinline__ uint2 load(const GemmOperand& operand,
                                               const OperandLayout& layout, std::int64_t row,
                                               int at, int count) {
    const std::uint8_t* from = operand.data + row * operand.row_stride + at;
    if (layout.aligned && count >= kPieceTerms) return __ldg(reinterpret_cast<const uint2*>(from));
    return load_bytes(from, count);
  }
  static __device__ __forceinline__ uint4 finish(const GemmOperand& operand, std::int64_t,
                                                 uint2 codes) {
    const auto pair = [&](std::uint32_t word, std::uint32_t selectors) {
      return cuda::half_pair_of_codes(__byte_perm(word, 0, selectors), operand.dtype);
    };
    return make_uint4(pair(codes.x, 0x1404), pair(codes.x, 0x3424), pair(codes.y, 0x1404),
                      pair(codes.y, 0x3424));
  }
};

// An operand that comes through registers. Threads side by side have neighbouring pieces of a row
// or, if the operand is transposed, the same piece of neighbouring rows.
template <class Tile, int kRows, class Pieces>
class PieceOperand {
  static constexpr int kPiecesAcross = Tile::kDepth / 16;
  static constexpr int kPieces = kRows * kPiecesAcross / Tile::kThreads;
  static_assert(Tile::kSlices == 1 && kPieces * Tile::kThreads == kRows * kPiecesAcross);

 public:
  // `first`: the first row of the tile.
  __device__ __forceinline__ PieceOperand(const GemmOperand& operand, const OperandLayout& layout,
                                          std::int64_t first, int rows, int terms,
                                          cuda::SharedAddress shared)
      : operand_(operand),
        layout_(layout),
        first_(first),
        rows_(rows),
        terms_(terms),
        shared_(shared) {}

  // Begins to load the stage that begins at term `first`.
  __device__ __forceinline__ void fetch(int first) {
#pragma unroll
    for (int i = 0; i < kPieces; ++i) {
      const int at = first + across(i) * kPieceTerms, count = min(terms_ - at, kPieceTerms);
      pieces_[i] = {};
      if (row(i) < rows_ && count > 0)
        pieces_[i] = Pieces::load(operand_, layout_, first_ + row(i), at, count);
    }
  }
  // Stores what was loaded in the slot at this offset.
  __device__ __forceinline__ void store(std::uint32_t slot) const {
#pragma unroll
    for (int i = 0; i < kPieces; ++i)
      cuda::store_shared(shared_ + slot + place_of_chunk<kRows>(row(i), across(i)),
                         Pieces::finish(operand_, first_ + row(i), pieces_[i]));
  }

 private:
  __device__ __forceinline__ int row(int piece) const {
    const int index = static_cast<int>(threadIdx.x) + piece * Tile::kThreads;
    return layout_.transposed ? index % kRows : index / kPiecesAcross;
  }
  __device__ __forceinline__ int across(int piece) const {
    const int index = static_cast<int>(threadIdx.x) + piece * Tile::kThreads;
    return layout_.transposed ? index / kRows : index % kPiecesAcross;
  }

  const GemmOperand& operand_;
  const OperandLayout& layout_;
  std::int64_t first_;
  std::int32_t rows_, terms_;
  cuda::SharedAddress shared_;
  typename Pieces::Loaded pieces_[kPieces];
};

// --- Transposed operands -----------------------------------------------------------------------

// In shared memory a transposed operand is lines: all rows of one term, in chunks of eight rows.
// Chunks are swizzled by term, so that ldmatrix, which reads a chunk of eight terms, meets no bank
// twice.
template <int kRows>
__device__ __forceinline__ int swizzle_of_line(int term) {
  constexpr int kChunks = kRows / 8;
  return kChunks >= 8 ? term % 8 : term / (8 / kChunks) % kChunks;
}
template <int kRows>
__device__ __forceinline__ std::uint32_t place_in_line(int term, int chunk) {
  return term * (kRows * 2) + (chunk ^ swizzle_of_line<kRows>(term)) * 16;
}

// A transposed operand, copied with cp.async. A thread copies the same chunk of several lines.
template <class Tile, int kRows>
class TransposedOperand {
  static constexpr int kAcross = kRows / 8, kStep = Tile::kThreads / kAcross;
  static constexpr int kCopies = kStageTerms<Tile> / kStep;
  static_assert(kCopies * kStep == kStageTerms<Tile> && kStep * kAcross == Tile::kThreads);

 public:
  // `rows`: those of the tile that exist.
  __device__ __forceinline__ TransposedOperand(const std::uint8_t* data,
                                               const OperandLayout& layout, int rows, int terms,
                                               cuda::SharedAddress shared)
      : stride_(layout.stride), shared_(shared) {
    term_ = static_cast<int>(threadIdx.x) / kAcross;
    chunk_ = static_cast<int>(threadIdx.x) % kAcross;
    from_ = data + term_ * stride_ + chunk_ * 16;
    bytes_ = min(max(rows - chunk_ * 8, 0), 8) * 2;
    terms_ = terms - term_;
  }
  // Copies the next stage to the slot at this offset.
  __device__ __forceinline__ void copy(std::uint32_t slot) {
    if (bytes_ > 0 && bytes_ < 16) {
#pragma unroll 1
      for (int i = 0; i < kCopies; ++i)
        store_bytes(place(i, slot), from(i), exists(i) ? bytes_ : 0);
    } else {
#pragma unroll
      for (int i = 0; i < kCopies; ++i) {
        if (exists(i))
          cuda::copy_async(place(i, slot), from(i));
        else
          cuda::store_shared(place(i, slot), make_uint4(0, 0, 0, 0));
      }
    }
    from_ += kStageTerms<Tile> * stride_;
    terms_ -= kStageTerms<Tile>;
  }

 private:
  __device__ __forceinline__ bool exists(int i) const { return bytes_ > 0 && i * kStep < terms_; }
  __device__ __forceinline__ const std::uint8_t* from(int i) const {
    return from_ + i * kStep * stride_;
  }
  __device__ __forceinline__ cuda::SharedAddress place(int i, std::uint32_t slot) const {
    return shared_ + slot + place_in_line<kRows>(term_ + i * kStep, chunk_);
  }

  const std::uint8_t* from_;
  std::int64_t stride_;
  std::int32_t term_, chunk_, bytes_, terms_;
  cuda::SharedAddress shared_;
};

// The outputs of a warp, like WarpTile, for operands that may be transposed: kInput, kWeight.
template <class Tile, bool kInput, bool kWeight>
class FloatTile : public WarpTile<Tile> {
  using Base = WarpTile<Tile>;

 public:
  using Fragments = typename Base::Fragments;

  __device__ __forceinline__ explicit FloatTile(cuda::SharedAddress shared)
      : Base(shared), shared_(shared) {
    // ldmatrix loads four matrices of 8 terms by 8 rows. Of a these are rows 0 to 7 and 8 to 15 of
    // the first eight terms, then of the next eight. Of b they are the first and the next eight
    // terms of rows 0 to 7, then of rows 8 to 15.
    const int first = this->lane_ / 8 % 2, second = this->lane_ / 16, term = this->lane_ % 8;
    input_ = term + second * 8;
    weight_ = term + first * 8;
    of_input_ = ((this->row_ / 8 + first) ^ swizzle_of_line<Tile::kM>(input_)) * 16;
    of_weight_ = ((this->column_ / 8 + second) ^ swizzle_of_line<Tile::kN>(weight_)) * 16;
  }
  __device__ __forceinline__ void load(std::uint32_t slot, std::uint32_t step,
                                       Fragments& fragments) const {
    if constexpr (kInput)
      load_transposed<Tile::kM>(slot, step * 16 + input_, of_input_, fragments.a);
    else
      this->load_input(slot, step, fragments);
    if constexpr (kWeight)
      load_transposed<Tile::kN>(slot + Tile::kWeightOffset, step * 16 + weight_, of_weight_,
                                fragments.b);
    else
      this->load_weight(slot, step, fragments);
  }

 private:
  // A block of 16 rows is two chunks further. Since chunks are swizzled, only these bits of the
  // offset differ.
  template <int kRows, int kBlocks>
  __device__ __forceinline__ void load_transposed(std::uint32_t slot, int term,
                                                  std::uint32_t in_line,
                                                  std::uint32_t (&words)[kBlocks][4]) const {
    const cuda::SharedAddress line = shared_ + slot + term * (kRows * 2);
#pragma unroll
    for (int i = 0; i < kBlocks; ++i)
      cuda::load_transposed_matrices(words[i],
                                     line + (in_line ^ static_cast<std::uint32_t>(i) * 32));
  }

  cuda::SharedAddress shared_;
  std::int32_t input_, weight_;         // the term whose line this lane addresses, in a step
  std::uint32_t of_input_, of_weight_;  // the offset of its chunk in that line
};

// --- Multiplying -------------------------------------------------------------------------------

// The sums of a warp: those of the current slice, and the total of the slices before. Place: a
// WarpTile. kScales: the kernel takes slices that have scales of blocks.
template <class T, class Tile, class Place, bool kScales>
class FloatSums {
  static constexpr int kStagesOfSlice = math::kTensorCoreSlice / kStageTerms<Tile>;

 public:
  static constexpr int kSteps = kSliceSteps * Tile::kParts;  // of a stage
  using Fragments = typename Place::Fragments;

  __device__ __forceinline__ explicit FloatSums(cuda::SharedAddress shared) : place_(shared) {}

  // Loads a step of the stage in this slot.
  __device__ __forceinline__ void load(std::uint32_t slot, std::uint32_t step,
                                       Fragments& fragments) const {
    place_.load(slot, step, fragments);
  }
  __device__ __forceinline__ void add(const Fragments& fragments) {
    Place::each_block(slice_, fragments, [](auto& sums, const auto& a, auto b0, auto b1) {
      cuda::multiply_add_floats<T>(sums, a, b0, b1);
    });
  }
  // Called after each stage. The slice ends with its last stage, or with the last of all.
  __device__ __forceinline__ void end_stage(const Gemm& gemm, const OutputTile& tile, int stage,
                                            bool last) {
    if (!last && stage % kStagesOfSlice != kStagesOfSlice - 1) return;
    if (kScales && gemm.joins_by_scales)
      join(gemm, tile, stage / kStagesOfSlice);
    else
      join();
  }
  __device__ __forceinline__ void store(std::int32_t* sums) const {
    place_.each_pair(totals_, [&](int row, int column, float first, float second) {
      *reinterpret_cast<float2*>(sums + Tile::sums().place(row, column)) =
          make_float2(first, second);
    });
  }

 private:
  __device__ __forceinline__ void join() {
    each_sum([&](int i, int j, int k) { totals_[i][j][k] = totals_[i][j][k] + slice_[i][j][k]; });
  }
  // Adds a slice under the scales of its blocks. All columns of a tile are in one block.
  __device__ __forceinline__ void join(const Gemm& gemm, const OutputTile& tile, int index) {
    static_assert(kBlockColumns % Tile::kN == 0);
    const Epilogue& e = gemm.epilogue;
    const float of_weight = static_cast<const float*>(
        e.weight_scale)[tile.column / kBlockColumns * gemm.weight_scale_row + index];
    const auto* of_input = static_cast<const float*>(e.input_scale) + index;
    float scales[Place::kBlocksM][2];
#pragma unroll
    for (int i = 0; i < Place::kBlocksM * 2; ++i) {
      const int row = min(place_.row_of(i / 2) + i % 2 * 8, tile.rows - 1);
      scales[i / 2][i % 2] = of_input[(tile.row + row) * e.input_scale_row] * of_weight;
    }
    each_sum([&](int i, int j, int k) {
      totals_[i][j][k] = math::fused(slice_[i][j][k], scales[i][k / 2], totals_[i][j][k]);
    });
  }
  // Calls visit(i, j, k) for every sum, and sets the slice back to 0.
  template <class Visit>
  __device__ __forceinline__ void each_sum(const Visit& visit) {
#pragma unroll
    for (int i = 0; i < Place::kBlocksM; ++i)
#pragma unroll
      for (int j = 0; j < Place::kBlocksN; ++j)
#pragma unroll
        for (int k = 0; k < 4; ++k) {
          visit(i, j, k);
          slice_[i][j][k] = 0;
        }
  }

  Place place_;
  typename Place::template Sums<float> slice_ = {}, totals_ = {};
};

// --- Kernels -----------------------------------------------------------------------------------

// Called after the last stage: sums go through shared memory to the outputs.
template <class Tile, class Sums>
__device__ __forceinline__ void finish_float_tile(const Sm80Args& args,
                                                  const Sm80Block<Tile>& block, const Sums& warp) {
  auto* sums = static_cast<std::int32_t*>(cuda::dynamic_shared());
  __syncthreads();
  warp.store(sums);
  __syncthreads();
  store_float_tile(block.gemm, block.tile, Tile::sums(), sums, args.stores_vectors);
}

// Copies run some stages ahead. Within a stage, fragments of a step are loaded before the step
// before it is multiplied.
template <class Tile, class Input, class Weight, class Sums>
__device__ __forceinline__ void copy_and_add(Input& input, Weight& weight, int stages,
                                             const Sm80Block<Tile>& block, Sums& warp) {
  constexpr int kStages = Tile::kAsyncStages;
  const auto slot_of = [](int stage) -> std::uint32_t {
    return stage % kStages * Tile::kStageBytes;
  };
  const auto copy = [&](int stage) {
    if (stage < stages) {
      input.copy(slot_of(stage));
      weight.copy(slot_of(stage));
    }
    cuda::end_copy_group();
  };
  typename Sums::Fragments fragments[2];
#pragma unroll 1
  for (int stage = 0; stage < kStages - 1; ++stage) copy(stage);
  cuda::wait_for_copy_groups<kStages - 2>();
  __syncthreads();
  if (stages > 0) warp.load(slot_of(0), 0, fragments[0]);
#pragma unroll 1
  for (int stage = 0; stage < stages; ++stage) {
    copy(stage + kStages - 1);
#pragma unroll
    for (int step = 0; step < Sums::kSteps; ++step) {
      if (step + 1 < Sums::kSteps) {
        warp.load(slot_of(stage), step + 1, fragments[(step + 1) % 2]);
      } else {
        // At the barrier every warp has loaded its last fragments of this stage, so the next copy
        // may overwrite its slot.
        cuda::wait_for_copy_groups<kStages - 2>();
        __syncthreads();
        if (stage + 1 < stages) warp.load(slot_of(stage + 1), 0, fragments[0]);
      }
      warp.add(fragments[step % 2]);
    }
    warp.end_stage(block.gemm, block.tile, stage, stage + 1 == stages);
  }
  cuda::wait_for_copy_groups<0>();
}

// An operand that is copied asynchronously, and where its row `row` begins.
template <class Tile, int kRows, bool kTransposed>
using CopiedOperand =
    std::conditional_t<kTransposed, TransposedOperand<Tile, kRows>, AsyncOperand<Tile, kRows>>;
template <bool kTransposed>
__device__ __forceinline__ const std::uint8_t* numbers_from(const GemmOperand& operand,
                                                            const OperandLayout& layout,
                                                            std::int64_t row) {
  return operand.data + row * (kTransposed ? 2 : layout.stride);
}

// kInput, kWeight: whether the operand is transposed.
template <class T, class Tile, bool kInput, bool kWeight>
__global__ void __launch_bounds__(Tile::kThreads, Tile::kAsyncBlocks)
    multiply_float_async(const __grid_constant__ Sm80Args args) {
  const Sm80Block<Tile> block(args);
  const Gemm& gemm = block.gemm;
  const auto terms = static_cast<std::int32_t>(gemm.k);
  const cuda::SharedAddress shared = cuda::shared_address_of(cuda::dynamic_shared());
  CopiedOperand<Tile, Tile::kM, kInput> input(
      numbers_from<kInput>(gemm.input, args.input, block.tile.row), args.input, block.tile.rows,
      kInput ? terms : terms * 2, shared);
  CopiedOperand<Tile, Tile::kN, kWeight> weight(
      numbers_from<kWeight>(gemm.weight, args.weight, block.tile.column), args.weight,
      block.tile.columns, kWeight ? terms : terms * 2, shared + Tile::kWeightOffset);
  FloatSums<T, Tile, FloatTile<Tile, kInput, kWeight>, false> warp(shared);
  copy_and_add<Tile>(input, weight, stages_of<kStageTerms<Tile>>(terms), block, warp);
  finish_float_tile(args, block, warp);
}

template <class T, class Tile, class Pieces>
__global__ void __launch_bounds__(Tile::kThreads, 1)
    multiply_float_any(const __grid_constant__ Sm80Args args) {
  const Sm80Block<Tile> block(args);
  const Gemm& gemm = block.gemm;
  const auto terms = static_cast<std::int32_t>(gemm.k);
  const cuda::SharedAddress shared = cuda::shared_address_of(cuda::dynamic_shared());
  PieceOperand<Tile, Tile::kM, Pieces> input(gemm.input, args.input, block.tile.row,
                                             block.tile.rows, terms, shared);
  PieceOperand<Tile, Tile::kN, Pieces> weight(gemm.weight, args.weight, block.tile.column,
                                              block.tile.columns, terms,
                                              shared + Tile::kWeightOffset);
  using Sums = FloatSums<T, Tile, WarpTile<Tile>, std::is_same_v<Pieces, CodePieces>>;
  Sums warp(shared);
  const int stages = stages_of<kStageTerms<Tile>>(terms);
  fetch_and_multiply<Tile>(input, weight, stages, kStageTerms<Tile>,
                           [&](int stage, std::uint32_t slot) {
#pragma unroll
                             for (int step = 0; step < Sums::kSteps; ++step) {
                               typename Sums::Fragments fragments;
                               warp.load(slot, step, fragments);
                               warp.add(fragments);
                             }
                             warp.end_stage(gemm, block.tile, stage, stage + 1 == stages);
                           });
  finish_float_tile(args, block, warp);
}

}  // namespace planq::linear
