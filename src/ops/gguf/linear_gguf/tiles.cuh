// linear_gguf of many rows of the input, on mma.sync.
//
// A block computes a tile of outputs, 128 rows of the weight with 64 rows of the input. It goes
// through them span by span: while it computes one, the bytes of the next are on their way to
// shared memory, by TMA where it can read them. A warp has 16 rows of the weight and all of the
// input: it makes words of codes from its blocks when mma.sync needs them, and the chains of the
// span and the sums of the spans before are in its registers.
#pragma once

#include <cstdint>

#include "cuda/launch.cuh"
#include "cuda/memory_access.cuh"
#include "cuda/tensor_map.cuh"
#include "ops/gguf/linear_gguf/chains.cuh"

namespace planq::linear_gguf {

// kBoxes: by TMA, of rows that begin at aligned vectors.
template <class B_, bool kBoxes_>
struct ManyRowsTile {
  using B = B_;
  static constexpr bool kBoxes = kBoxes_;
  static constexpr int kSpanBytes = kSpan / B::kElements * B::kBytes;
  // Whether every span of every row of the weight does, too.
  static constexpr bool kAligned = kBoxes && kSpanBytes % 16 == 0;
  using Row = RowWords<kAligned>;
  static constexpr int kWarps = 8, kThreads = kWarps * cuda::kWarp, kBlocks = 2, kStages = 2;
  static constexpr int kWeights = kWarps * 16, kInputs = 64;
  static constexpr int kInputTiles = kInputs / 8;  // of mma.sync
  static constexpr int kSubBlocks = kSpan / B::kSubBlock;
  static constexpr int kGroups = kSpan / kGroup;
  static constexpr bool kHasMinimum = gguf::Run<B>::kHasMinimum;

  // A stage has rows of the weight, rows of the input, and the scales of these. Rows are an odd
  // number of vectors apart, so that lanes of different rows do not meet in a bank. A word behind
  // the last row of the weight may be read. Boxes of the input are half a span wide, and TMA's
  // swizzle keeps their lanes apart.
  static constexpr int kVectors = ((kAligned ? 0 : 15) + kSpanBytes + 15) / 16;
  static constexpr int kPitch = (kVectors | 1) * 16;
  static constexpr int kInputPitch = kBoxes ? cuda::kBoxBytes : kSpan + 16;
  static constexpr int kInputAt =
      kBoxes ? (kWeights * kPitch + 1023) / 1024 * 1024 + 1024 : kWeights * kPitch + 16;
  static constexpr int kInputBytes = kBoxes ? kInputs * kSpan : kInputs * kInputPitch;
  // Bytes that a box of the weight counts as one, of which a row has at most 256.
  static constexpr int kBoxUnit = kPitch > 256 ? 2 : 1;
  static constexpr int kInputScalesAt = kInputAt + kInputBytes;
  // What rows of the input have one of for every group: by group, then by t, the number of the
  // lane's column in mma.sync, then by tile, and two neighbours of it.
  static constexpr int kColumnPitch = kInputTiles * 2 + 4;
  static constexpr int kGroupPitch = 4 * kColumnPitch;
  static constexpr int kScalesEnd = kInputScalesAt + kGroups * kGroupPitch * 4;
  static constexpr int kStageBytes = kBoxes ? (kScalesEnd + 1023) / 1024 * 1024 : kScalesEnd;

  // Behind the stages: scales of the weight by sub-block and row, then its minima, what minima are
  // multiplied with, and where rows begin in memory, those of the weight first.
  static constexpr int kScalesAt = kStages * kStageBytes;
  static constexpr int kFactorsAt = kScalesAt + kSubBlocks * (kHasMinimum ? 2 : 1) * kWeights * 4;
  static constexpr int kRowsAt = kFactorsAt + (kHasMinimum ? kSubBlocks * kGroupPitch * 4 : 0);
  // The swizzle wants boxes to begin at multiples of 1024 bytes.
  static constexpr int kSharedBytes = kRowsAt + (kWeights + kInputs) * 8 + (kBoxes ? 1024 : 0);

  // The sums, by row of the input, in the place of the stages.
  static constexpr int kSumPitch = kWeights + 4;
  static_assert(kInputs * kSumPitch * 4 <= kScalesAt);

  // Where the number of a row of the input is in those of a group.
  static __device__ __forceinline__ int place_of_input(int row) {
    return row % 8 / 2 * kColumnPitch + row / 8 * 2 + row % 2;
  }
};

struct ManyRowsArgs {
  Gemm gemm;
  const std::uint8_t* weight_end = nullptr;
  int64_t first_gemm = 0;        // of the batch, in this launch
  std::uint32_t tiles = 1;       // of one gemm
  std::uint32_t tiles_down = 1;  // along the rows of the input
  std::int32_t spans = 0;
  std::int32_t last_bytes = 0, last_groups = 0;  // of the last span of a row
  bool has_input_vectors = false;                // rows of the input are aligned vectors
  bool stores_vectors = false;                   // four neighbouring outputs are an aligned vector
  bool follows = false;                          // a kernel of the same plan is before this one
};
struct BoxedManyRowsArgs {
  ManyRowsArgs rows;
  cuda::TensorMap weight, input;
};

// --- To shared memory ----------------------------------------------------------------------------

template <class Tile>
class Stages {
  using B = typename Tile::B;

 public:
  // `row`: of the tile's first output.
  __device__ __forceinline__ Stages(const ManyRowsArgs& args, int64_t row, std::uint8_t* shared)
      : args_(args), row_(static_cast<int>(row)), shared_(shared) {}

  // Write down where rows begin. Those behind the last are the last one again.
  __device__ __forceinline__ void find_weight(int column_tile) const {
    const auto own = static_cast<int>(threadIdx.x);
    if (own < Tile::kWeights) rows()[own] = row_of(args_.gemm, column_tile * Tile::kWarps, own);
  }
  __device__ __forceinline__ void find_input(const Moved& moved) const {
    const auto own = static_cast<int>(threadIdx.x);
    if (own < Tile::kInputs)
      rows()[Tile::kWeights + own] = moved.input + input_row(own) * args_.gemm.input.row_stride;
  }

  __device__ __forceinline__ std::uint8_t* stage(int span) const {
    return shared_ + span % Tile::kStages * Tile::kStageBytes;
  }
  __device__ __forceinline__ int groups(int span) const {
    return span == args_.spans - 1 ? args_.last_groups : Tile::kGroups;
  }
  // A row of the weight in a stage.
  __device__ __forceinline__ typename Tile::Row row_words(int span, int row) const {
    int past = 0;
    if constexpr (!Tile::kAligned) past = cuda::misalignment<16>(weight_row(span, row));
    return {reinterpret_cast<const std::uint32_t*>(stage(span)), row * Tile::kPitch + past};
  }
  // By one thread: begin to copy a span, whose barrier counts its bytes.
  __device__ __forceinline__ void copy_weight_box(int span, const cuda::TensorMap& weight,
                                                  int column_tile, cuda::Barrier& barrier) const {
    constexpr int kVector = 16 / Tile::kBoxUnit;
    const int column = span * (Tile::kSpanBytes / Tile::kBoxUnit);
    barrier.arrive_and_expect(Tile::kWeights * Tile::kPitch + Tile::kInputs * kSpan);
    cuda::copy_box(stage(span), weight, column - column % kVector, column_tile * Tile::kWeights, 0,
                   barrier);
  }
  __device__ __forceinline__ void copy_input_boxes(int span, const cuda::TensorMap& input,
                                                   const cuda::Barrier& barrier) const {
#pragma unroll
    for (int half = 0; half < 2; ++half)
      cuda::copy_box(stage(span) + Tile::kInputAt + half * Tile::kInputs * cuda::kBoxBytes, input,
                     span * kSpan + half * cuda::kBoxBytes, row_, 0, barrier);
  }
  // Begin to copy a span.
  __device__ __forceinline__ void copy_weight(int span) const {
    const int bytes = span == args_.spans - 1 ? args_.last_bytes : Tile::kSpanBytes;
    const int own = static_cast<int>(threadIdx.x % 4) * 16;
    constexpr int kRowsAtOnce = Tile::kThreads / 4;
#pragma unroll
    for (int i = 0; i < Tile::kWeights / kRowsAtOnce; ++i) {
      const int row = static_cast<int>(threadIdx.x / 4) + i * kRowsAtOnce;
      const std::uint8_t* const first = weight_row(span, row) + own;
      const int past = Tile::kAligned ? 0 : cuda::misalignment<16>(first);
      const int left = past + bytes - own, room = room_in_weight(first - past, args_.weight_end);
      const cuda::SharedAddress to =
          cuda::shared_address_of(stage(span) + row * Tile::kPitch + own);
#pragma unroll
      for (int at = 0; at < Tile::kVectors * 16; at += 64)
        if (at < left) copy_weight_vector(to + at, first - past + at, room - at);
    }
  }
  __device__ __forceinline__ void copy_input(int span, const Moved& moved) const {
    if constexpr (!Tile::kBoxes) copy_codes(span);
    copy_scales(span, moved);
  }

 private:
  __device__ __forceinline__ const std::uint8_t** rows() const {
    return reinterpret_cast<const std::uint8_t**>(shared_ + Tile::kRowsAt);
  }
  __device__ __forceinline__ const std::uint8_t* weight_row(int span, int row) const {
    return rows()[row] + int64_t{span} * Tile::kSpanBytes;
  }
  __device__ __forceinline__ int input_row(int row) const {
    return min(row_ + row, static_cast<int>(args_.gemm.m) - 1);
  }
  __device__ __forceinline__ void copy_codes(int span) const {
    constexpr int kVectors = kSpan / 16, kRowsAtOnce = Tile::kThreads / kVectors;
    const int vector = static_cast<int>(threadIdx.x % kVectors);
    if (vector >= groups(span) * 2) return;
    const int64_t at = int64_t{span} * kSpan + vector * 16;
#pragma unroll
    for (int i = 0; i < Tile::kInputs / kRowsAtOnce; ++i) {
      const int row = static_cast<int>(threadIdx.x / kVectors) + i * kRowsAtOnce;
      const std::uint8_t* const from = rows()[Tile::kWeights + row] + at;
      std::uint8_t* const to = stage(span) + Tile::kInputAt + row * Tile::kInputPitch + vector * 16;
      if (args_.has_input_vectors)
        cuda::copy_async(cuda::shared_address_of(to), from);
      else
#pragma unroll 1
        for (int j = 0; j < 16; ++j) to[j] = __ldg(from + j);
    }
  }
  // Those of groups that there are none of are 0.
  __device__ __forceinline__ void copy_scales(int span, const Moved& moved) const {
    auto* const to = reinterpret_cast<float*>(stage(span) + Tile::kInputScalesAt);
    const int group = static_cast<int>(threadIdx.x % Tile::kGroups);
    constexpr int kRowsAtOnce = Tile::kThreads / Tile::kGroups;
#pragma unroll
    for (int i = 0; i < Tile::kInputs / kRowsAtOnce; ++i) {
      const int row = static_cast<int>(threadIdx.x / Tile::kGroups) + i * kRowsAtOnce;
      float* const own = to + group * Tile::kGroupPitch + Tile::place_of_input(row);
      if (group < groups(span))
        cuda::copy_async<4>(cuda::shared_address_of(own),
                            moved.input_scale +
                                input_row(row) * args_.gemm.epilogue.input_scale_row +
                                int64_t{span} * Tile::kGroups + group);
      else
        *own = 0;
    }
  }

  const ManyRowsArgs& args_;
  int row_;
  std::uint8_t* shared_;
};

// Writes the scales of a span, by sub-block and row of the weight, and then its minima. Two threads
// have a row.
template <class Tile>
__device__ __forceinline__ void unpack_span(const Stages<Tile>& stages, int span, float* to) {
  using B = typename Tile::B;
  constexpr int kHalf = kHalfSubBlocks<B>;
  const int row = static_cast<int>(threadIdx.x / 2), half = static_cast<int>(threadIdx.x % 2);
  HalfScales<B> scales, minima;
  unpack_scales<B>(stages.row_words(span, row), half, stages.groups(span), scales, minima);
#pragma unroll
  for (int i = 0; i < kHalf; ++i) {
    float* const own = to + (half * kHalf + i) * Tile::kWeights + row;
    *own = scales[i];
    if constexpr (Tile::kHasMinimum) own[Tile::kSubBlocks * Tile::kWeights] = minima[i];
  }
}

// Where a vector of a row of the input is in a stage, from kInputAt on.
template <class Tile>
__device__ __forceinline__ int place_of_vector(int row, int vector) {
  if constexpr (Tile::kBoxes)
    return vector / 8 * Tile::kInputs * cuda::kBoxBytes + row * cuda::kBoxBytes +
           ((vector % 8) ^ (row % 8)) * 16;
  else
    return row * Tile::kInputPitch + vector * 16;
}

// What the minima of a span's sub-blocks are multiplied with, by sub-block and row of the input:
// the sum of the codes, times their scale.
template <class Tile>
__device__ __forceinline__ void find_factors(const std::uint8_t* stage, float* to) {
  constexpr int kCount = Tile::kInputs * Tile::kSubBlocks, kSize = Tile::B::kSubBlock;
  const auto* const scales = reinterpret_cast<const float*>(stage + Tile::kInputScalesAt);
#pragma unroll
  for (int i = 0; i < kCount / Tile::kThreads; ++i) {
    const int own = static_cast<int>(threadIdx.x) + i * Tile::kThreads;
    const int row = own / Tile::kSubBlocks, at = own % Tile::kSubBlocks;
    const std::uint8_t* const codes = stage + Tile::kInputAt;
    int sum = 0;
#pragma unroll
    for (int j = 0; j < kSize / 16; ++j)
      sum += sum_of_codes<16>(codes + place_of_vector<Tile>(row, at * (kSize / 16) + j));
    const int place = Tile::place_of_input(row);
    to[at * Tile::kGroupPitch + place] =
        scales[at * kSize / kGroup * Tile::kGroupPitch + place] * static_cast<float>(sum);
  }
}

// --- A span --------------------------------------------------------------------------------------

// Of a lane: two rows of the weight with two rows of the input in every tile of mma.sync.
template <class Tile>
using LaneSums = float[Tile::kInputTiles][4];

template <class Tile>
class SpanOfTile {
  using B = typename Tile::B;
  using F = Fragments<B>;
  static constexpr int kOfGroup = kGroup / B::kSubBlock;

 public:
  // Those of the lane's row lane / 4 of the warp's, and eight rows further.
  __device__ __forceinline__ SpanOfTile(const Stages<Tile>& stages, int span,
                                        const std::uint8_t* shared)
      : stage_(stages.stage(span)),
        rows_{stages.row_words(span, own_row()), stages.row_words(span, own_row() + 8)},
        codes_(cuda::shared_address_of(
            stage_ + Tile::kInputAt +
            place_of_vector<Tile>(own_lane() / 16 * 8 + own_lane() % 8, own_lane() / 8 % 2))),
        scales_(reinterpret_cast<const float*>(shared + Tile::kScalesAt) + own_row()),
        input_scales_(reinterpret_cast<const float*>(stage_ + Tile::kInputScalesAt) +
                      own_lane() % 4 * Tile::kColumnPitch),
        factors_(reinterpret_cast<const float*>(shared + Tile::kFactorsAt) +
                 own_lane() % 4 * Tile::kColumnPitch) {}

  __device__ __forceinline__ void add_chains(LaneSums<Tile>& sums) const {
#pragma unroll
    for (int group = 0; group < Tile::kGroups; ++group) add_group(group, sums);
  }

 private:
  static __device__ __forceinline__ int own_row() { return own_warp() * 16 + own_lane() / 4; }
  // The swizzle changes bits 4 to 6 of the address: those of the group come to it by XOR.
  __device__ __forceinline__ cuda::SharedAddress codes_of_group(int group) const {
    const auto bytes = static_cast<cuda::SharedAddress>(group * kGroup);
    if constexpr (Tile::kBoxes)
      return (codes_ ^ bytes % cuda::kBoxBytes) +
             bytes / cuda::kBoxBytes * (Tile::kInputs * cuda::kBoxBytes);
    else
      return codes_ + bytes;
  }
  __device__ __forceinline__ void add_group(int group, LaneSums<Tile>& sums) const {
    CodeWords<B> a[kOfGroup];
    float scale[kOfGroup][2], minimum[kOfGroup][2] = {};
#pragma unroll
    for (int k = 0; k < kOfGroup; ++k) {
      const int i = group * kOfGroup + k;
      F::template load<false>(rows_, own_lane() % 4, i, a[k]);
#pragma unroll
      for (int row = 0; row < 2; ++row) {
        scale[k][row] = scales_[i * Tile::kWeights + row * 8];
        if constexpr (Tile::kHasMinimum)
          minimum[k][row] = scales_[(Tile::kSubBlocks + i) * Tile::kWeights + row * 8];
      }
    }
    // Two tiles at a time.
#pragma unroll
    for (int tile = 0; tile < Tile::kInputTiles; tile += 2) {
      std::uint32_t words[4];
      cuda::load_matrices(words, codes_of_group(group) + static_cast<cuda::SharedAddress>(
                                                             tile * 8 * Tile::kInputPitch));
      float of_input[4];
      load_four_floats(input_scales_ + group * Tile::kGroupPitch + tile * 2, of_input);
#pragma unroll
      for (int k = 0; k < kOfGroup; ++k) {
        float factors[4] = {};
        if constexpr (Tile::kHasMinimum)
          load_four_floats(factors_ + (group * kOfGroup + k) * Tile::kGroupPitch + tile * 2,
                           factors);
#pragma unroll
        for (int j = 0; j < 2; ++j)
          add_step(group * kOfGroup + k, a[k], words + j * 2 + k, scale[k], minimum[k],
                   of_input + j * 2, factors + j * 2, sums[tile + j]);
      }
    }
  }
  __device__ __forceinline__ static void add_step(int i, const CodeWords<B>& a,
                                                  const std::uint32_t* words,
                                                  const float (&scale)[2],
                                                  const float (&minimum)[2], const float* of_input,
                                                  const float* factors, float (&sums)[4]) {
    std::uint32_t b[B::kSubBlock / 16];
#pragma unroll
    for (int j = 0; j < B::kSubBlock / 16; ++j) b[j] = words[j];
    std::int32_t dots[4];
    cuda::multiply_onto<F::kUnsigned>(start_of<B>(i), dots, a, b);
#pragma unroll
    for (int row = 0; row < 2; ++row)
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        float& sum = sums[row * 2 + j];
        sum = __fmaf_rn(scale[row] * of_input[j], float_of(dots[row * 2 + j], start_of<B>(i)), sum);
        if constexpr (Tile::kHasMinimum) sum = __fmaf_rn(minimum[row], factors[j], sum);
      }
  }

  const std::uint8_t* stage_;
  typename Tile::Row rows_[2];
  cuda::SharedAddress codes_;
  const float *scales_, *input_scales_, *factors_;
};

// --- The kernel ----------------------------------------------------------------------------------

template <class Tile>
__device__ __forceinline__ void store_tile(const Gemm& gemm, const LaneSums<Tile>& sums,
                                           int64_t row, int64_t column, float* shared,
                                           bool vectors) {
  const int own = own_warp() * 16 + own_lane() / 4;
  __syncthreads();
#pragma unroll
  for (int tile = 0; tile < Tile::kInputTiles; ++tile)
#pragma unroll
    for (int i = 0; i < 4; ++i)
      shared[(tile * 8 + own_lane() % 4 * 2 + i % 2) * Tile::kSumPitch + own + i / 2 * 8] =
          sums[tile][i];
  __syncthreads();
  const int rows = static_cast<int>(min(gemm.m - row, int64_t{Tile::kInputs}));
#pragma unroll 1
  for (int i = own_warp(); i < rows; i += Tile::kWarps) {
    float four[4];
    load_four_floats(shared + i * Tile::kSumPitch + own_lane() * 4, four);
    store_four(gemm, row + i, column + own_lane() * 4, four, vectors);
  }
}

// weight, input: as TMA reads them, and a barrier for each stage, where Tile::kBoxes.
template <class Tile>
__device__ __forceinline__ void multiply_tile(const ManyRowsArgs& args,
                                              const cuda::TensorMap& weight,
                                              const cuda::TensorMap& input,
                                              cuda::Barrier* barriers) {
  __shared__ Moved moved;
  auto* shared = static_cast<std::uint8_t*>(cuda::dynamic_shared());
  if constexpr (Tile::kBoxes) shared += -cuda::shared_address_of(shared) & 1023;
  const std::uint32_t tile = blockIdx.x % args.tiles;
  const int column_tile = static_cast<int>(tile / args.tiles_down);
  const int64_t row = int64_t{tile % args.tiles_down} * Tile::kInputs;
  const Stages<Tile> stages(args, row, shared);
  const bool copies = Tile::kBoxes && threadIdx.x == 0 && args.spans > 0;
  if constexpr (Tile::kBoxes)
    if (threadIdx.x == 0) {
      for (int i = 0; i < Tile::kStages; ++i) barriers[i].init(1);
      cuda::publish_barriers();
    }
  if (!args.follows) cuda::follow_previous();
  stages.find_weight(column_tile);
  if (threadIdx.x == 0) moved.find(args.gemm, args.first_gemm + blockIdx.x / args.tiles);
  if (copies) stages.copy_weight_box(0, weight, column_tile, barriers[0]);
  __syncthreads();
  if (!Tile::kBoxes && args.spans > 0) stages.copy_weight(0);
  stages.find_input(moved);
  if (args.follows) cuda::wait_for_previous();
  __syncthreads();
  if (copies) stages.copy_input_boxes(0, input, barriers[0]);
  if (args.spans > 0) stages.copy_input(0, moved);
  cuda::end_copy_group();

  auto* const scales = reinterpret_cast<float*>(shared + Tile::kScalesAt);
  auto* const factors = reinterpret_cast<float*>(shared + Tile::kFactorsAt);
  LaneSums<Tile> totals = {};
#pragma unroll 1
  for (int span = 0; span < args.spans; ++span) {
    cuda::wait_for_copy_groups<0>();
    if constexpr (Tile::kBoxes) barriers[span % Tile::kStages].wait(span / Tile::kStages % 2);
    __syncthreads();
    if (span + 1 < args.spans) {
      if constexpr (Tile::kBoxes) {
        if (copies) {
          cuda::Barrier& barrier = barriers[(span + 1) % Tile::kStages];
          stages.copy_weight_box(span + 1, weight, column_tile, barrier);
          stages.copy_input_boxes(span + 1, input, barrier);
        }
      } else {
        stages.copy_weight(span + 1);
      }
      stages.copy_input(span + 1, moved);
      cuda::end_copy_group();
    }
    unpack_span(stages, span, scales);
    if constexpr (Tile::kHasMinimum) find_factors<Tile>(stages.stage(span), factors);
    __syncthreads();
    LaneSums<Tile> sums = {};
    SpanOfTile<Tile>(stages, span, shared).add_chains(sums);
#pragma unroll
    for (int i = 0; i < Tile::kInputTiles; ++i)
#pragma unroll
      for (int j = 0; j < 4; ++j) totals[i][j] += sums[i][j];
  }
  Gemm own = args.gemm;
  own.output = moved.output;
  own.epilogue.residual = moved.residual;
  store_tile<Tile>(own, totals, row, int64_t{column_tile} * Tile::kWeights,
                   reinterpret_cast<float*>(shared), args.stores_vectors);
}

template <class Tile>
__global__ void __launch_bounds__(Tile::kThreads, Tile::kBlocks)
    multiply_many_rows(const __grid_constant__ ManyRowsArgs args) {
  multiply_tile<Tile>(args, {}, {}, nullptr);
}
template <class Tile>
__global__ void __launch_bounds__(Tile::kThreads, Tile::kBlocks)
    multiply_many_boxed_rows(const __grid_constant__ BoxedManyRowsArgs args) {
#if PLANQ_HAS_CLUSTERS || !defined(__CUDA_ARCH__)
  __shared__ cuda::Barrier barriers[Tile::kStages];
  multiply_tile<Tile>(args.rows, args.weight, args.input, barriers);
#endif
}

}  // namespace planq::linear_gguf
