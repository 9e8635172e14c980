// An item of few_rows.cuh: a span of 16 or 32 rows of the weight with a span of up to eight rows of
// the input, by one warp. The weight is operand a of mma.sync, of 16 rows, the input is operand b,
// of eight rows.
//
// Of two rows of the input and more, each is one of b, and a lane has the whole chains of its
// outputs. Of one row, each of b has the codes of one sub-block, and zeros elsewhere ("folded"):
// eight steps of mma.sync give the sums of eight sub-blocks, a lane has those of two, and the
// chains are put together in shared memory. So no lane computes what another one computes too.
#pragma once

#include <cstdint>

#include "cuda/memory_access.cuh"
#include "cuda/mma.cuh"
#include "ops/gguf/linear_gguf/chains.cuh"

namespace planq::linear_gguf {

// Where the sum of a row of the input with a row of the weight is in those of an item: by two rows
// of the input. Lanes that write at once do not meet in a bank.
__device__ __forceinline__ int place_of_sum(int row, int column) {
  return row / 2 * 32 + ((row % 2 * 16 + column) ^ row / 2 % 4 * 8);
}
inline constexpr int kMostRounds = 3;

// kBoxes: the weight is copied by TMA: see BoxCopies. kInputs: rows of the input at once, 1 or 8.
template <class B_, bool kBoxes_, int kInputs_>
struct FewRowsTile {
  using B = B_;
  static constexpr bool kBoxes = kBoxes_;
  static constexpr int kInputs = kInputs_, kWeights = 16;
  static constexpr bool kFolded = kInputs == 1;
  static constexpr int kSubBlocks = kSpan / B::kSubBlock;
  static constexpr bool kHasMinimum = gguf::Run<B>::kHasMinimum;

  // Whether every span of every row of a stage begins at a multiple of eight bytes, not anywhere.
  static constexpr int kSpanBytes = kSpan / B::kElements * B::kBytes;
  static constexpr bool kAligned = kBoxes && kSpanBytes % 8 == 0;
  using Row = SharedRow<kAligned>;
  // Of 32 elements of a row, a lane reads 8t ... 8t + 7 at once: see FragmentTraits.
  static constexpr bool kNeighbours =
      kAligned && Fragments<B>::kHasNeighbours && B::kBytes % 8 == 0;

  // Rows of a stage are an odd number of vectors apart, so that lanes of different rows do not meet
  // in a bank. A word behind the last row may be read.
  static constexpr int vectors_of(int past) { return (past + kSpanBytes + 15) / 16; }
  static constexpr int pitch_of(int past) { return (vectors_of(past) | 1) * 16; }
  static constexpr int kVectors = vectors_of(15);
  static constexpr int kLeastPitch = pitch_of(kAligned ? 0 : 15);
  // Bytes that a box counts as one, of which a row has at most 256.
  static constexpr int kBoxUnit = pitch_of(15) > 256 ? 2 : 1;
  static_assert(!kBoxes || kSpanBytes % kBoxUnit == 0);

  // Tiles of an item: as many as shared memory has room for.
  static constexpr int kTiles = kBoxes && kFolded && kLeastPitch <= 144 ? 2 : 1;
  static constexpr int kStageRows = kTiles * kWeights;

  // A warp's scratch. Folded, of eight sub-blocks: the factors of the chains, a scale and a sum for
  // each sub-block, by row of the weight, then the minima. Vectors change places, so that lanes do
  // not meet in a bank. Otherwise: vectors of four scales, then of four minima, each of all rows.
  static constexpr int kFoldedSubBlocks = 8;
  static constexpr int kFactorPitch = kFoldedSubBlocks * 8, kMinimumPitch = kFoldedSubBlocks * 4;
  static constexpr int kMinimaAt = kStageRows * kFactorPitch;
  static constexpr int kScaleVectors = kSubBlocks / 4 * (kHasMinimum ? 2 : 1);
  static constexpr int kScalePitch = (kStageRows + 4) * 16;
  static constexpr int kScratchBytes =
      kFolded ? kMinimaAt + (kHasMinimum ? kStageRows * kMinimumPitch : 0)
              : kScaleVectors * kScalePitch;
  static_assert(kScratchBytes % 64 == 0);

  // A row of the input in a span: codes, then scales, then these times the sums of the codes of
  // sub-blocks, which minima are multiplied with.
  static constexpr int kInputScalesAt = kSpan, kTotalsAt = kSpan + kSpan / kGroup * 4;
  static constexpr int kRecordBytes = kHasMinimum ? kTotalsAt + 64 : kTotalsAt;
  static_assert(kRecordBytes % 128 == 32 || kRecordBytes % 128 == 96);

  static constexpr int sum_floats(int rows) { return rows == 1 ? 16 : (rows + 1) / 2 * 32; }

  // Rounds whose sums are in shared memory. Of three, a warp may be a round ahead of another.
  static constexpr int kRounds = kFolded ? kMostRounds : 1;
  // Four outputs of which a thread adds up, or the lane of a warp.
  static constexpr int most_tiles(int warps, int rows) {
    return kFolded ? cuda::kWarp / 4 : warps * cuda::kWarp / (4 * rows);
  }
};

// --- The input -----------------------------------------------------------------------------------

// Folded: the words for mma.sync, which are 0 but of sub-blocks 8h + g, the scales of sub-blocks
// 8h + 2t and the next, and all totals.
template <class Tile, bool kFolded = Tile::kFolded>
struct ItemInput {
  using B = typename Tile::B;
  static constexpr int kSteps = Tile::kSubBlocks / 8, kWords = B::kSubBlock / 16;
  std::uint32_t words[Tile::kSubBlocks][kWords];
  float scales[kSteps][2];
  float totals[Tile::kHasMinimum ? Tile::kSubBlocks : 1];

  __device__ __forceinline__ void load(const std::uint8_t* slot, int) {
    const int g = own_lane() / 4, t = own_lane() % 4;
    const auto* const floats = reinterpret_cast<const float*>(slot + Tile::kInputScalesAt);
#pragma unroll
    for (int h = 0; h < kSteps; ++h) {
#pragma unroll
      for (int j = 0; j < kWords; ++j) {
        const std::uint32_t word = *reinterpret_cast<const std::uint32_t*>(
            slot + (8 * h + g) * B::kSubBlock +
            (Tile::kNeighbours ? t * 8 + j * 4 : t * 4 + j * 16));
#pragma unroll
        for (int i = 0; i < 8; ++i) words[8 * h + i][j] = i == g ? word : 0;
      }
#pragma unroll
      for (int j = 0; j < 2; ++j)
        scales[h][j] = floats[(8 * h + 2 * t + j) * B::kSubBlock / kGroup];
    }
    if constexpr (Tile::kHasMinimum)
#pragma unroll
      for (int i = 0; i < Tile::kSubBlocks; ++i) totals[i] = floats[kSpan / kGroup + i];
  }
};

// Otherwise: the words for mma.sync of row g, and the scales and totals of rows 2t and 2t + 1.
template <class Tile>
struct ItemInput<Tile, false> {
  using B = typename Tile::B;
  static constexpr int kGroups = kSpan / kGroup;
  std::uint32_t codes[kGroups][2];
  float scales[2][kGroups];
  float totals[2][Tile::kHasMinimum ? Tile::kSubBlocks : 1];

  __device__ __forceinline__ void load(const std::uint8_t* slot, int rows) {
    const int g = own_lane() / 4, t = own_lane() % 4;
    const std::uint8_t* const own = slot + min(g, rows - 1) * Tile::kRecordBytes;
#pragma unroll
    for (int i = 0; i < kGroups; ++i)
#pragma unroll
      for (int j = 0; j < 2; ++j)
        codes[i][j] = *reinterpret_cast<const std::uint32_t*>(
            own + i * kGroup + (Tile::kNeighbours ? t * 8 + j * 4 : t * 4 + j * 16));
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      const auto* const floats = reinterpret_cast<const float*>(
          slot + min(2 * t + j, rows - 1) * Tile::kRecordBytes + Tile::kInputScalesAt);
#pragma unroll
      for (int i = 0; i < kGroups; ++i) scales[j][i] = floats[i];
      if constexpr (Tile::kHasMinimum)
#pragma unroll
        for (int i = 0; i < Tile::kSubBlocks; ++i) totals[j][i] = floats[kGroups + i];
    }
  }
  // The words for mma.sync of sub-block i.
  __device__ __forceinline__ void words(int i, std::uint32_t (&b)[B::kSubBlock / 16]) const {
    constexpr int kOfGroup = kGroup / B::kSubBlock;
#pragma unroll
    for (int j = 0; j < B::kSubBlock / 16; ++j) b[j] = codes[i / kOfGroup][i % kOfGroup + j];
  }
};

// A warp's place in shared memory for a span of the input. Rows behind the last are the last one
// again.
template <class Tile>
class InputSlot {
  using B = typename Tile::B;

 public:
  __device__ __forceinline__ explicit InputSlot(std::uint8_t* slot) : slot_(slot) {}

  // Begins to copy `rows` rows from `row` on. What is behind the groups of the span becomes 0.
  __device__ __forceinline__ void copy(const Gemm& gemm, const Moved& moved, int span, int groups,
                                       int row, int rows, bool vectors) const {
    const int last = static_cast<int>(gemm.m) - 1;
    constexpr int kVectors = kSpan / 16, kGroups = kSpan / kGroup;
#pragma unroll 1
    for (int i = own_lane(); i < rows * kVectors; i += cuda::kWarp) {
      const int own = i / kVectors, vector = i % kVectors;
      const std::uint8_t* const from = moved.input + min(row + own, last) * gemm.input.row_stride +
                                       int64_t{span} * kSpan + vector * 16;
      copy_vector(slot_ + own * Tile::kRecordBytes + vector * 16, from, vector / 2 < groups,
                  vectors);
    }
#pragma unroll 1
    for (int i = own_lane(); i < rows * kGroups; i += cuda::kWarp) {
      const int own = i / kGroups, group = i % kGroups;
      auto* const to =
          reinterpret_cast<float*>(slot_ + own * Tile::kRecordBytes + Tile::kInputScalesAt) + group;
      if (group < groups)
        cuda::copy_async<4>(cuda::shared_address_of(to),
                            moved.input_scale +
                                min(row + own, last) * gemm.epilogue.input_scale_row +
                                int64_t{span} * kGroups + group);
      else
        *to = 0;
    }
  }
  // Loads what a lane needs. Then the slot is free.
  __device__ __forceinline__ void load(ItemInput<Tile>& input, int rows) const {
    if constexpr (Tile::kHasMinimum) {
      find_totals(rows);
      __syncwarp();
    }
    input.load(slot_, rows);
    __syncwarp();
  }

 private:
  __device__ __forceinline__ static void copy_vector(std::uint8_t* to, const std::uint8_t* from,
                                                     bool exists, bool vectors) {
    if (exists && vectors) return cuda::copy_async(cuda::shared_address_of(to), from);
#pragma unroll 1
    for (int i = 0; i < 16; ++i) to[i] = exists ? __ldg(from + i) : std::uint8_t{0};
  }
  __device__ __forceinline__ void find_totals(int rows) const {
    constexpr int kSize = B::kSubBlock;
#pragma unroll 1
    for (int i = own_lane(); i < rows * Tile::kSubBlocks; i += cuda::kWarp) {
      const int at = i % Tile::kSubBlocks;
      std::uint8_t* const own = slot_ + i / Tile::kSubBlocks * Tile::kRecordBytes;
      auto* const floats = reinterpret_cast<float*>(own + Tile::kInputScalesAt);
      floats[kSpan / kGroup + at] =
          floats[at * kSize / kGroup] * static_cast<float>(sum_of_codes<kSize>(own + at * kSize));
    }
  }

  std::uint8_t* slot_;
};

// --- Chains --------------------------------------------------------------------------------------

// The row of a tile in a stage that is row g of mma.sync, which has eight further ones: so that
// lanes that read at once read other banks.
__device__ __forceinline__ int place_of_row(int g) { return g % 4 * 2 + g / 4; }

__device__ __forceinline__ cuda::SharedAddress address(int bytes) {
  return static_cast<cuda::SharedAddress>(bytes);
}

// Where an item is. past: where rows begin in their first vector, those of places place_of_row(g),
// those eight further, and that of the lane's own row in ItemChains.
struct ItemPlace {
  cuda::SharedAddress stage, sums;
  cuda::SharedAddress next_sums;  // of the second tile
  unsigned past[3];
  int groups;   // of the span
  bool second;  // whether there is a second tile
};

// Computes items. `scratch`: of the warp. `row_of`: the row of a tile that is in a place.
template <class Tile, bool kFolded = Tile::kFolded>
class ItemChains {
  using B = typename Tile::B;
  using F = Fragments<B>;
  using Row = typename Tile::Row;

 public:
  template <class RowOf>
  __device__ __forceinline__ ItemChains(cuda::SharedAddress scratch, int pitch, const RowOf& row_of)
      : row_(address(place_of_row(own_lane() / 4) * pitch)),
        eight_rows_(address(8 * pitch)),
        own_row_(address(own_row() * pitch)),
        scales_(scratch + address(place_of_row(own_lane() / 4) * 16)),
        own_scales_(scratch + address(own_row() * 16)) {
    const int place = place_of_row(own_lane() / 4);
    const int first = row_of(place), second = row_of(place + 8), row = own_lane() % 4 * 2;
    first_sum_ = address(place_of_sum(row, first) * 4);
    second_sum_ = address(place_of_sum(row, second) * 4);
    cuda::keep(row_);
    cuda::keep(own_row_);
    cuda::keep(scales_);
    cuda::keep(own_scales_);
    cuda::keep(first_sum_);
    cuda::keep(second_sum_);
  }
  // The row of a stage whose scales the lane unpacks, all of them or, of 16 rows, half.
  __device__ __forceinline__ static int own_row() {
    return Tile::kTiles == 2 ? own_lane() : own_lane() / 2;
  }

  // `rows`: of the input.
  __device__ __forceinline__ void compute(const ItemPlace& item,
                                          const ItemInput<Tile, false>& input, int rows) const {
    unpack(Row(item.stage + own_row_ + item.past[2]), item.groups);
    __syncwarp();
#pragma unroll
    for (int tile = 0; tile < Tile::kTiles; ++tile) {
      if (tile == 1 && !item.second) break;
      const cuda::SharedAddress first = item.stage + row_ + address(tile * 2) * eight_rows_;
      const Row two[2] = {Row(first + item.past[0]), Row(first + eight_rows_ + item.past[1])};
      float chains[2][2] = {};
      multiply(two, input, scales_ + address(tile * Tile::kWeights * 16), chains);
      store(chains, tile == 0 ? item.sums : item.next_sums, rows);
    }
  }

 private:
  // Writes the scales and minima as kScaleVectors says.
  __device__ __forceinline__ void unpack(const Row& row, int groups) const {
    if constexpr (Tile::kTiles == 2) {
      unpack_half(row, 0, groups, own_scales_);
      unpack_half(row, 1, groups, own_scales_ + address(kHalfVectors * Tile::kScalePitch));
    } else {
      const int half = own_lane() % 2;
      unpack_half(row, half, groups,
                  own_scales_ + address(half * kHalfVectors * Tile::kScalePitch));
    }
  }
  __device__ __forceinline__ static void unpack_half(const Row& row, int half, int groups,
                                                     cuda::SharedAddress to) {
    HalfScales<B> scales, minima;
    unpack_scales<B>(row, half, groups, scales, minima);
#pragma unroll
    for (int i = 0; i < kHalfVectors; ++i) {
      store_four(to + address(i * Tile::kScalePitch), scales + i * 4);
      if constexpr (Tile::kHasMinimum)
        store_four(to + address((2 * kHalfVectors + i) * Tile::kScalePitch), minima + i * 4);
    }
  }
  __device__ __forceinline__ static void store_four(cuda::SharedAddress to, const float* four) {
    cuda::store_shared(to, make_uint4(__float_as_uint(four[0]), __float_as_uint(four[1]),
                                      __float_as_uint(four[2]), __float_as_uint(four[3])));
  }
  // chains[i][j]: place place_of_row(g) + 8i of the weight with row 2t + j of the input.
  __device__ __forceinline__ static void multiply(const Row (&rows)[2],
                                                  const ItemInput<Tile, false>& input,
                                                  cuda::SharedAddress scales,
                                                  float (&chains)[2][2]) {
    float scale[2][4], minimum[2][4];
#pragma unroll
    for (int i = 0; i < Tile::kSubBlocks; ++i) {
      if (i % 4 == 0) {
#pragma unroll
        for (int row = 0; row < 2; ++row) {
          const cuda::SharedAddress own = scales + address(row * 128);
          load_shared_floats(own + address(i / 4 * Tile::kScalePitch), scale[row]);
          if constexpr (Tile::kHasMinimum)
            load_shared_floats(own + address((Tile::kSubBlocks + i) / 4 * Tile::kScalePitch),
                               minimum[row]);
        }
      }
      CodeWords<B> a;
      F::template load<Tile::kNeighbours>(rows, own_lane() % 4, i, a);
      std::uint32_t b[B::kSubBlock / 16];
      input.words(i, b);
      std::int32_t dots[4];
      cuda::multiply_onto<F::kUnsigned>(start_of<B>(i), dots, a, b);
#pragma unroll
      for (int row = 0; row < 2; ++row)
#pragma unroll
        for (int j = 0; j < 2; ++j) {
          float& chain = chains[row][j];
          chain = __fmaf_rn(scale[row][i % 4] * input.scales[j][i * B::kSubBlock / kGroup],
                            float_of(dots[row * 2 + j], start_of<B>(i)), chain);
          if constexpr (Tile::kHasMinimum)
            chain = __fmaf_rn(minimum[row][i % 4], input.totals[j][i], chain);
        }
    }
  }
  __device__ __forceinline__ void store(const float (&chains)[2][2], cuda::SharedAddress to,
                                        int rows) const {
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      if (own_lane() % 4 * 2 + j >= rows) continue;
      // The next row is 16 numbers further or, where these change places, not.
      cuda::store_shared_float(to + (first_sum_ ^ address(j * 64)), chains[0][j]);
      cuda::store_shared_float(to + (second_sum_ ^ address(j * 64)), chains[1][j]);
    }
  }

  static constexpr int kHalfVectors = kHalfSubBlocks<B> / 4;
  cuda::SharedAddress row_, eight_rows_, own_row_;  // in a stage
  cuda::SharedAddress scales_, own_scales_;
  cuda::SharedAddress first_sum_, second_sum_;  // in an item's sums, of an even row
};

// Folded. Rows of the scratch are those of mma.sync, tile by tile. A lane has the chain of one.
template <class Tile>
class ItemChains<Tile, true> {
  using B = typename Tile::B;
  using F = Fragments<B>;
  using Row = typename Tile::Row;
  using Input = ItemInput<Tile, true>;

 public:
  template <class RowOf>
  __device__ __forceinline__ ItemChains(cuda::SharedAddress scratch, int pitch, const RowOf& row_of)
      : row_(address(place_of_row(own_lane() / 4) * pitch)), eight_rows_(address(8 * pitch)) {
    const int g = own_lane() / 4, t = own_lane() % 4, chain = own_lane() % Tile::kStageRows;
    factors_ = scratch + address(g * Tile::kFactorPitch + (t ^ g / 2) * 16);
    minima_ = scratch +
              address(Tile::kMinimaAt + g * Tile::kMinimumPitch + (t / 2 ^ g / 4) * 16 + t % 2 * 8);
    chain_ = scratch + address(chain * Tile::kFactorPitch + chain / 2 % 4 * 16);
    chain_minima_ =
        scratch + address(Tile::kMinimaAt + chain * Tile::kMinimumPitch + chain / 4 % 2 * 16);
    sum_ = address(4 * row_of(place_of_row(chain % 8) + chain / 8 % 2 * 8));
    cuda::keep(row_);
    cuda::keep(factors_);
    cuda::keep(minima_);
    cuda::keep(chain_);
    cuda::keep(chain_minima_);
    cuda::keep(sum_);
  }
  __device__ __forceinline__ static int own_row() { return 0; }

  __device__ __forceinline__ void compute(const ItemPlace& item, const Input& input, int) const {
    float chain = 0;
#pragma unroll
    for (int h = 0; h < Input::kSteps; ++h) {
      if (h > 0) __syncwarp();
#pragma unroll
      for (int tile = 0; tile < Tile::kTiles; ++tile) {
        if (tile == 1 && !item.second) break;
        const cuda::SharedAddress first = item.stage + row_ + address(tile * 2) * eight_rows_;
        const Row two[2] = {Row(first + item.past[0]), Row(first + eight_rows_ + item.past[1])};
        fold(two, input, h, tile);
        if (item.groups < kSpan / kGroup) clear(h, item.groups, tile);
      }
      __syncwarp();
      chain = continued(chain, input, h);
    }
    const bool second = own_lane() >= Tile::kWeights;
    if (!second || item.second)
      cuda::store_shared_float((second ? item.next_sums : item.sums) + sum_, chain);
  }

 private:
  // Writes the factors of sub-blocks 8h to 8h + 7 of a tile.
  __device__ __forceinline__ void fold(const Row (&rows)[2], const Input& input, int h,
                                       int tile) const {
    float sums[4];
    multiply(rows, input, h, sums);
#pragma unroll
    for (int row = 0; row < 2; ++row) {
      float scales[2], minima[2];
      PairScales<B>::load(rows[row], h, own_lane() % 4, scales, minima);
      const int eights = tile * 2 + row;
      cuda::store_shared(factors_ + address(eights * 8 * Tile::kFactorPitch),
                         make_uint4(__float_as_uint(scales[0] * input.scales[h][0]),
                                    __float_as_uint(sums[row * 2]),
                                    __float_as_uint(scales[1] * input.scales[h][1]),
                                    __float_as_uint(sums[row * 2 + 1])));
      if constexpr (Tile::kHasMinimum)
        cuda::store_shared(minima_ + address(eights * 8 * Tile::kMinimumPitch),
                           make_uint2(__float_as_uint(minima[0]), __float_as_uint(minima[1])));
    }
  }
  // Of sub-blocks that there are none of, the scales and minima become 0.
  __device__ __forceinline__ void clear(int h, int groups, int tile) const {
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      if ((8 * h + own_lane() % 4 * 2 + j) * B::kSubBlock < groups * kGroup) continue;
#pragma unroll
      for (int row = 0; row < 2; ++row) {
        const int eights = tile * 2 + row;
        cuda::store_shared_float(factors_ + address(eights * 8 * Tile::kFactorPitch + j * 8), 0);
        if constexpr (Tile::kHasMinimum)
          cuda::store_shared_float(minima_ + address(eights * 8 * Tile::kMinimumPitch + j * 4), 0);
      }
    }
  }
  // The sums of sub-blocks 8h + 2t and the next, of places place_of_row(g) and eight further.
  __device__ __forceinline__ static void multiply(const Row (&rows)[2], const Input& input, int h,
                                                  float (&sums)[4]) {
    std::int32_t dots[4] = {start_of<B>(0), start_of<B>(1), start_of<B>(0), start_of<B>(1)};
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      CodeWords<B> a;
      F::template load<Tile::kNeighbours>(rows, own_lane() % 4, 8 * h + i, a);
      cuda::multiply_further<F::kUnsigned>(dots, a, input.words[8 * h + i]);
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) sums[i] = float_of(dots[i], start_of<B>(i % 2));
  }
  __device__ __forceinline__ float continued(float chain, const Input& input, int h) const {
    float minimum[4];
#pragma unroll
    for (unsigned i = 0; i < Tile::kFoldedSubBlocks; i += 2) {
      float factors[4];
      load_shared_floats(chain_ ^ i / 2 * 16, factors);
      if constexpr (Tile::kHasMinimum)
        if (i % 4 == 0) load_shared_floats(chain_minima_ ^ i / 4 * 16, minimum);
#pragma unroll
      for (unsigned j = 0; j < 2; ++j) {
        chain = __fmaf_rn(factors[j * 2], factors[j * 2 + 1], chain);
        if constexpr (Tile::kHasMinimum)
          chain = __fmaf_rn(minimum[(i + j) % 4],
                            input.totals[static_cast<unsigned>(8 * h) + i + j], chain);
      }
    }
    return chain;
  }

  cuda::SharedAddress row_, eight_rows_;  // in a stage
  cuda::SharedAddress factors_, minima_;  // that the lane writes
  cuda::SharedAddress chain_, chain_minima_;
  cuda::SharedAddress sum_;  // in the sums of a tile
};

}  // namespace planq::linear_gguf
