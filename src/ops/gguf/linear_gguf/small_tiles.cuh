// Products of small weights with two rows of the input and more, on mma.sync: see
// small_weights.cuh.
//
// A block has some rows of the input and 16 rows of a weight, all of them whole: it begins to copy
// everything to shared memory at once. Then it goes on with other rows of weights, if there are
// more than a GPU has room for. A warp makes the chains of a span, of these 16 rows with 8 kGroups
// rows of the input, so that warps compute the spans of a row at the same time. Weights are operand
// a of mma.sync, of which a fragment serves all rows of the input that the warp has. Then a thread
// adds up the spans of four outputs, in their order.
#pragma once

#include <algorithm>
#include <cstdint>

#include "cuda/mma.cuh"
#include "ops/gguf/linear_gguf/small_weights.cuh"

namespace planq::linear_gguf {

inline constexpr int kTileWeights = 16;  // rows of a weight

// Where a block has what in its shared memory, in bytes; rows of weights come first. Behind the
// last of these, up to a span is read, which nothing multiplies that counts.
struct SmallTilesArgs {
  SmallWeightsArgs weights;
  std::uint32_t tiles_at_once = 0;  // of all weights; a block has every such tile
  std::int32_t weight_bytes = 0;    // of a tile
  std::int32_t spans = 0;
  std::int32_t part_shift = 0;  // 2^it warps have the same span, each with other rows of the input
  std::int32_t rows = 0;        // of the input, of a block
  std::int32_t lane_shift = 0;  // 2^it threads copy such a row
  std::int32_t input_at = 0, scales_at = 0, warps_at = 0, shared_bytes = 0;

  // Codes of a row, whole spans. Lanes of other rows do not meet in a bank.
  PLANQ_HD int input_pitch() const { return spans * kSpan + 16; }
  // Scales of the rows in a group.
  PLANQ_HD int scale_pitch() const { return rows + 2; }
};
static_assert(sizeof(SmallTilesArgs) <= 4096, "arguments of a kernel");

// What a warp has of shared memory: first the scales and the minima of a span of the weight, four
// sub-blocks of a row side by side, then the sums of the span, by row of the input.
template <int kGroups>
struct SmallTile {
  static constexpr int kInputs = 8 * kGroups;
  static constexpr int kScaleBytes = kTileWeights * 16;
  static constexpr int kSumPitch = kTileWeights + 4;
  static constexpr int kWarpBytes = std::max(4 * kScaleBytes, kInputs * kSumPitch * 4);
};

// --- A span --------------------------------------------------------------------------------------

// Of a lane. Rows of the weight begin at the span: row lane / 4, that eight further, and row
// lane / 2. codes: what the lane tells ldmatrix of the first eight rows of the input. scales: those
// of rows 2 (lane % 4) and the next of these, in the first group.
struct SmallSpan {
  cuda::SharedAddress rows[3];
  cuda::SharedAddress codes, scratch;
  const float* scales;
  int groups, input_pitch, scale_pitch;
};

// Writes scales and minima of a span. Two lanes have a row.
template <class B, class Row>
__device__ __forceinline__ void write_scales(const SmallSpan& span) {
  constexpr int kVectors = kHalfSubBlocks<B> / 4, kBytes = kTileWeights * 16;
  const int half = own_lane() % 2;
  HalfScales<B> scales, minima;
  unpack_scales<B>(Row(span.rows[2]), half, span.groups, scales, minima);
  const auto store = [&](int vector, const float* four) {
    cuda::store_shared(span.scratch + static_cast<unsigned>((half * kVectors + vector) * kBytes +
                                                            own_lane() / 2 * 16),
                       make_uint4(__float_as_uint(four[0]), __float_as_uint(four[1]),
                                  __float_as_uint(four[2]), __float_as_uint(four[3])));
  };
#pragma unroll
  for (int i = 0; i < kVectors; ++i) {
    store(i, scales + i * 4);
    if constexpr (gguf::Run<B>::kHasMinimum) store(2 * kVectors + i, minima + i * 4);
  }
}

// One step of the chains of eight rows of the input: chains[2i + j] is that of row lane / 4 + 8i of
// the weight with row 2 (lane % 4) + j of the input.
template <class B>
class SmallStep {
  using F = Fragments<B>;
  static constexpr bool kHasMinimum = gguf::Run<B>::kHasMinimum;

 public:
  std::int32_t start;
  CodeWords<B> a;
  float scale[2], minimum[2];

  // words: of the input, for ldmatrix gives more than a step needs.
  __device__ __forceinline__ void add(const std::uint32_t* words, float2 of_input,
                                      float (&chains)[4]) const {
    std::uint32_t b[B::kSubBlock / 16];
#pragma unroll
    for (int i = 0; i < B::kSubBlock / 16; ++i) b[i] = words[i];
    std::int32_t dots[4];
    cuda::multiply_onto<F::kUnsigned>(start, dots, a, b);
    const float both[2] = {of_input.x, of_input.y};
    float totals[2] = {};
    if constexpr (kHasMinimum) find_totals(b, both, totals);
#pragma unroll
    for (int row = 0; row < 2; ++row)
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        float& chain = chains[row * 2 + j];
        chain = __fmaf_rn(scale[row] * both[j], float_of(dots[row * 2 + j], start), chain);
        if constexpr (kHasMinimum) chain = __fmaf_rn(minimum[row], totals[j], chain);
      }
  }

 private:
  // Sums of codes, times their scale. That the tensor cores multiply by ones takes fewer
  // instructions than to add up codes once for all warps, and to load the sums.
  __device__ __forceinline__ static void find_totals(const std::uint32_t (&b)[B::kSubBlock / 16],
                                                     const float (&of_input)[2],
                                                     float (&totals)[2]) {
    constexpr std::int32_t kStart = 0x4B400000;
    CodeWords<B> ones;
#pragma unroll
    for (std::uint32_t& word : ones) word = 0x01010101u;
    std::int32_t sums[4];
    cuda::multiply_onto<true>(kStart, sums, ones, b);
#pragma unroll
    for (int j = 0; j < 2; ++j) totals[j] = of_input[j] * float_of(sums[j], kStart);
  }
};

// Whether spans begin at multiples of 8 bytes where rows do.
template <class B>
inline constexpr bool kHasAlignedSpans = kSpan / B::kElements * B::kBytes % 8 == 0;

// Adds the chains of a span to zeros. kAligned: it begins at multiples of 8 bytes.
template <class B, bool kAligned, int kGroups>
__device__ __forceinline__ void add_chains(const SmallSpan& span, float (&chains)[kGroups][4]) {
  constexpr int kVectors = kSpan / B::kSubBlock / 4, kBytes = kTileWeights * 16;
  constexpr int kSize = B::kSubBlock, kLoaded = 64;  // codes of a row that ldmatrix loads
  using Row = SharedRow<kAligned>;
  write_scales<B, Row>(span);
  __syncwarp();
  const Row two[2] = {Row(span.rows[0]), Row(span.rows[1])};
  const int vectors = (span.groups * kGroup + 4 * kSize - 1) / (4 * kSize);
  std::uint32_t words[kGroups][4];
  float2 of_input[kGroups];
#pragma unroll 1
  for (int vector = 0; vector < vectors; ++vector) {
    float scale[2][4], minimum[2][4] = {};
#pragma unroll
    for (int row = 0; row < 2; ++row) {
      const cuda::SharedAddress from =
          span.scratch + static_cast<unsigned>(vector * kBytes + (own_lane() / 4 + row * 8) * 16);
      load_shared_floats(from, scale[row]);
      if constexpr (gguf::Run<B>::kHasMinimum)
        load_shared_floats(from + kVectors * kBytes, minimum[row]);
    }
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const int i = vector * 4 + j, at = i * kSize;
      SmallStep<B> step = {.start = start_of<B>(j),
                           .scale = {scale[0][j], scale[1][j]},
                           .minimum = {minimum[0][j], minimum[1][j]}};
      Fragments<B>::template load<false>(two, own_lane() % 4, i, step.a);
#pragma unroll
      for (int k = 0; k < kGroups; ++k) {
        if (j * kSize % kLoaded == 0)
          cuda::load_matrices(words[k],
                              span.codes + static_cast<unsigned>(at + k * 8 * span.input_pitch));
        if (j * kSize % kGroup == 0)
          of_input[k] = *reinterpret_cast<const float2*>(span.scales +
                                                         at / kGroup * span.scale_pitch + k * 8);
        step.add(words[k] + j * kSize % kLoaded / 16, of_input[k], chains[k]);
      }
    }
  }
}

// --- A block -------------------------------------------------------------------------------------

// 16 rows of a weight.
struct WeightTile {
  const SmallWeight* weight;
  int column;  // the first one

  __device__ __forceinline__ static WeightTile of(const SmallWeightsArgs& args,
                                                  std::uint32_t tile) {
    const int number = number_of_weight(args, tile);
    return {args.weights + number,
            static_cast<int>(tile - args.first_blocks[number]) * kTileWeights};
  }
  __device__ __forceinline__ void prefetch() const {
#pragma unroll 1
    for (int i = own_warp(); i < kTileWeights; i += kSmallWarps)
      WeightRow(*weight, column + i).prefetch();
  }
  __device__ __forceinline__ void copy(const std::uint8_t* to, int pitch) const {
#pragma unroll 1
    for (int i = own_warp(); i < kTileWeights; i += kSmallWarps)
      WeightRow(*weight, column + i).copy(cuda::shared_address_of(to + i * pitch));
  }
};

// What a block does with its rows of the input.
template <int kGroups>
class BlockOfTiles {
  using Tile = SmallTile<kGroups>;

 public:
  // row: the first of the input.
  __device__ __forceinline__ BlockOfTiles(const SmallTilesArgs& args, int row)
      : args_(args),
        row_(row),
        rows_(min(args.rows, static_cast<int>(args.weights.gemm.m) - row)),
        shared_(static_cast<std::uint8_t*>(cuda::dynamic_shared())) {}

  // Begin to copy, in groups of copies that the caller ends. place: 0 or, where there are two, 1.
  __device__ __forceinline__ void copy_weight(const WeightTile& tile, int place) const {
    tile.copy(weight_place(place), args_.weights.pitch);
  }
  __device__ __forceinline__ void copy_input() const {
    const int row = static_cast<int>(threadIdx.x) >> args_.lane_shift;
    if (row >= rows_) return;
    copy_codes(row);
    copy_scales(row);
  }
  // All threads are beyond the weight when this returns, though not beyond its sums.
  __device__ __forceinline__ void multiply(const WeightTile& tile, int place) const {
    const int at_once = kSmallWarps >> args_.part_shift;
    float totals[4] = {};
#pragma unroll 1
    for (int first = 0; first < args_.spans; first += at_once) {
      if (first > 0) __syncthreads();
      write_sums(tile, place, first + (own_warp() >> args_.part_shift));
      __syncthreads();
      add_sums(min(at_once, args_.spans - first), totals);
    }
    if (own_row() < rows_)
      store_small_four(args_.weights, *tile.weight, row_ + own_row(), tile.column + own_four(),
                       totals);
  }

 private:
  // Of the threads that copy the same row of the input.
  __device__ __forceinline__ int lanes() const { return 1 << args_.lane_shift; }
  __device__ __forceinline__ int lane() const {
    return static_cast<int>(threadIdx.x) & (lanes() - 1);
  }
  __device__ __forceinline__ void copy_codes(int row) const {
    const Gemm& gemm = args_.weights.gemm;
    const std::uint8_t* const from = gemm.input.data + (row_ + row) * gemm.input.row_stride;
    std::uint8_t* const to = shared_ + args_.input_at + row * args_.input_pitch();
    const int bytes = args_.weights.groups * kGroup;
    if (args_.weights.has_input_vectors) {
#pragma unroll 2
      for (int at = lane() * 16; at < bytes; at += lanes() * 16)
        cuda::copy_async(cuda::shared_address_of(to + at), from + at);
    } else {
#pragma unroll 1
      for (int at = lane() * 16; at < bytes; at += lanes() * 16)
        *reinterpret_cast<uint4*>(to + at) = input_vector(from + at, false);
    }
  }
  // Those of groups that there are none of are 0.
  __device__ __forceinline__ void copy_scales(int row) const {
    const linear::Epilogue& e = args_.weights.gemm.epilogue;
    const float* const from =
        static_cast<const float*>(e.input_scale) + (row_ + row) * e.input_scale_row;
    float* const to = reinterpret_cast<float*>(shared_ + args_.scales_at) + row;
#pragma unroll 1
    for (int i = lane(); i < args_.spans * (kSpan / kGroup); i += lanes()) {
      float* const own = to + i * args_.scale_pitch();
      if (i < args_.weights.groups)
        cuda::copy_async<4>(cuda::shared_address_of(own), from + i);
      else
        *own = 0;
    }
  }

  // The first row of the input, of the block's, that the warp has.
  __device__ __forceinline__ int first_input() const {
    return (own_warp() & ((1 << args_.part_shift) - 1)) * Tile::kInputs;
  }
  __device__ __forceinline__ std::uint8_t* of_warp(int warp) const {
    return shared_ + args_.warps_at + warp * Tile::kWarpBytes;
  }
  __device__ __forceinline__ std::uint8_t* weight_place(int place) const {
    return shared_ + place * args_.weight_bytes;
  }
  // Where a row begins at a span.
  __device__ __forceinline__ cuda::SharedAddress weight_at(const WeightTile& tile, int place,
                                                           int row, int at) const {
    const SmallWeight& weight = *tile.weight;
    const auto number = static_cast<unsigned>(min(tile.column + row, weight.rows - 1));
    const unsigned past = (static_cast<unsigned>(reinterpret_cast<std::uintptr_t>(weight.data)) +
                           number * static_cast<unsigned>(weight.row_stride)) %
                          16;
    cuda::SharedAddress address =
        cuda::shared_address_of(weight_place(place) + row * args_.weights.pitch);
    address += past + static_cast<unsigned>(at);
    cuda::keep(address);
    return address;
  }
  template <class B>
  __device__ __forceinline__ SmallSpan span_of(const WeightTile& tile, int place, int span) const {
    constexpr int kBytes = kSpan / B::kElements * B::kBytes, kGroupsOfSpan = kSpan / kGroup;
    const int lane = own_lane(), first = first_input();
    SmallSpan own;
    own.rows[0] = weight_at(tile, place, lane / 4, span * kBytes);
    own.rows[1] = weight_at(tile, place, lane / 4 + 8, span * kBytes);
    own.rows[2] = weight_at(tile, place, lane / 2, span * kBytes);
    own.input_pitch = args_.input_pitch();
    own.scale_pitch = args_.scale_pitch();
    own.codes =
        cuda::shared_address_of(shared_ + args_.input_at + (first + lane % 8) * own.input_pitch +
                                span * kSpan + lane / 8 * 16);
    own.scratch = cuda::shared_address_of(of_warp(own_warp()));
    own.scales = reinterpret_cast<const float*>(shared_ + args_.scales_at) +
                 span * kGroupsOfSpan * own.scale_pitch + first + lane % 4 * 2;
    own.groups = min(kGroupsOfSpan, args_.weights.groups - span * kGroupsOfSpan);
    return own;
  }
  // The warp's sums of a span, if there is one.
  __device__ __forceinline__ void write_sums(const WeightTile& tile, int place, int span) const {
    if (span >= args_.spans || first_input() >= rows_) return;
    float chains[kGroups][4] = {};
    with_small_block(tile.weight->type, [&](auto type) {
      using B = decltype(type);
      const SmallSpan own = span_of<B>(tile, place, span);
      if (kHasAlignedSpans<B> && tile.weight->is_aligned)
        add_chains<B, kHasAlignedSpans<B>>(own, chains);
      else
        add_chains<B, false>(own, chains);
    });
    __syncwarp();
    auto* const to = reinterpret_cast<float*>(of_warp(own_warp())) +
                     own_lane() % 4 * 2 * Tile::kSumPitch + own_lane() / 4;
#pragma unroll
    for (int k = 0; k < kGroups; ++k)
#pragma unroll
      for (int i = 0; i < 4; ++i) to[(k * 8 + i % 2) * Tile::kSumPitch + i / 2 * 8] = chains[k][i];
  }
  // Of the four outputs that a thread has.
  __device__ __forceinline__ static int own_row() {
    return static_cast<int>(threadIdx.x) / (kTileWeights / 4);
  }
  __device__ __forceinline__ static int own_four() {
    return static_cast<int>(threadIdx.x) % (kTileWeights / 4) * 4;
  }
  __device__ __forceinline__ void add_sums(int spans, float (&totals)[4]) const {
    if (own_row() >= rows_) return;
    const std::uint8_t* from = of_warp(own_row() / Tile::kInputs) +
                               (own_row() % Tile::kInputs * Tile::kSumPitch + own_four()) * 4;
#pragma unroll 4
    for (int i = 0; i < spans; ++i, from += Tile::kWarpBytes << args_.part_shift) {
      float four[4];
      load_four_floats(reinterpret_cast<const float*>(from), four);
#pragma unroll
      for (int j = 0; j < 4; ++j) totals[j] += four[j];
    }
  }

  const SmallTilesArgs& args_;
  int row_, rows_;
  std::uint8_t* shared_;
};

template <int kGroups>
__global__ void __launch_bounds__(kSmallThreads, 2)
    multiply_small_tiles(const __grid_constant__ SmallTilesArgs args) {
  const SmallWeightsArgs& weights = args.weights;
  if (weights.follows) cuda::let_dependents_start();
  const std::uint32_t step = args.tiles_at_once;
  std::uint32_t number = blockIdx.x % step;
  const BlockOfTiles<kGroups> own(args, static_cast<int>(blockIdx.x / step) * args.rows);
  WeightTile tile = WeightTile::of(weights, number);
  if (!weights.follows) {
    tile.prefetch();
    cuda::follow_previous();
  }
  own.copy_weight(tile, 0);
  if (weights.follows) cuda::wait_for_previous();
  own.copy_input();
  cuda::end_copy_group();
  // While a tile is computed, the next one is on its way.
#pragma unroll 1
  for (int place = 0;; place ^= 1) {
    number += step;
    const bool goes_on = number < weights.blocks;
    WeightTile next = tile;
    if (goes_on) {
      next = WeightTile::of(weights, number);
      own.copy_weight(next, place ^ 1);
      // Few rows of the input are computed faster than memory answers.
      if (kGroups < 4 && weights.blocks - number > step)
        WeightTile::of(weights, number + step).prefetch();
    }
    cuda::end_copy_group();
    cuda::wait_for_copy_groups<1>();
    __syncthreads();
    own.multiply(tile, place);
    if (!goes_on) break;
    tile = next;
  }
}

}  // namespace planq::linear_gguf
