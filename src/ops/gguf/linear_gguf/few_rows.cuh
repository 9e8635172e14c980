// linear_gguf of few rows of the input, on mma.sync. It takes as long as the weight takes to read.
//
// The weight is operand a of mma.sync, which has 16 rows, the input is operand b, which has eight.
// An item is a span of 16 rows of the weight: they are copied to shared memory, and a warp computes
// their chains with eight rows of the input. A warp keeps a span of the input in registers, and
// goes down the tiles of a pass with it; its neighbours have the neighbouring spans. Each begins
// the copies of later items of its own before it computes one, whatever the other warps do. After
// every round of items, some warps add up the spans of a tile of 16 x 8 outputs each, in their
// order, while the others go on.
#pragma once

#include <algorithm>
#include <cstdint>

#include "cuda/launch.cuh"
#include "cuda/memory_access.cuh"
#include "cuda/mma.cuh"
#include "ops/gguf/linear_gguf/chains.cuh"

namespace planq::linear_gguf {

// kAligned: every span of every row of the weight begins at an aligned vector. kStages: items of a
// warp in shared memory. kBlocks: blocks of a multiprocessor.
// kInputs: rows of the input, 8 or, so that a lane has half the sums, 4.
template <class B_, bool kAligned_, int kInputs_, int kStages_, int kBlocks_>
struct FewRowsTile {
  using B = B_;
  static constexpr bool kAligned = kAligned_;
  using Row = RowWords<kAligned>;
  static constexpr int kStages = kStages_, kBlocks = kBlocks_, kWarps = 8;
  static constexpr int kThreads = kWarps * cuda::kWarp;
  static constexpr int kInputs = kInputs_, kWeights = 16;
  static constexpr int kOwnInputs = kInputs / 4;  // of a lane
  static constexpr int kMostTiles = 8;            // of a pass
  static constexpr int kSubBlocks = kSpan / B::kSubBlock;
  static constexpr bool kHasMinimum = gguf::Run<B>::kHasMinimum;

  // Of 32 elements of a row, a lane reads 8t ... 8t + 7 at once: see FragmentTraits.
  static constexpr bool kNeighbours =
      kAligned && Fragments<B>::kHasNeighbours && B::kBytes % 8 == 0;

  // A row of a span that is not aligned begins anywhere in its first 16 bytes. Rows are so far
  // apart that lanes of different rows do not meet in a bank.
  static constexpr int kSpanBytes = kSpan / B::kElements * B::kBytes;
  static constexpr int kVectors = ((kAligned ? 0 : 15) + kSpanBytes + 15) / 16;
  static_assert(!kAligned || kSpanBytes % 16 == 0);
  static constexpr int kPitch = (kNeighbours ? ((kVectors + 1) / 4 * 4 + 2) : (kVectors | 1)) * 16;
  static_assert(kPitch >= kVectors * 16);
  static constexpr int kStageBytes = kWeights * kPitch;
  // A word behind the last row may be read.
  static constexpr int kRingBytes = kWarps * kStages * kStageBytes + 16;

  // Vectors of four scales, then of four minima, each of all rows.
  static constexpr int kScaleVectors = kSubBlocks / 4 * (kHasMinimum ? 2 : 1);
  static constexpr int kScalePitch = (kWeights + 4) * 4;  // floats
  static constexpr int kScaleBytes = kWarps * kScaleVectors * kScalePitch * 4;

  // The sums of an item, by row of the input. Rows are so far apart that lanes do not meet.
  static constexpr int kSumPitch = kWeights + 4;
  // Of two rounds. A block fits on any architecture, where there are not many stages.
  static constexpr int kLeftBytes = (99 << 10) - 64 - kRingBytes - kScaleBytes;
  static constexpr int kSumBytes = std::clamp(kLeftBytes, 10 << 10, 20 << 10);
  static constexpr int item_floats(int rows) { return rows * kSumPitch; }
  static constexpr int items_of_round(int rows) {
    const int most = kSumBytes / (2 * 4 * item_floats(rows)) / kWarps * kWarps;
    return most < 8 * kWarps ? most : 8 * kWarps;
  }
  static constexpr int shared_bytes(int rows) {
    return kRingBytes + kScaleBytes + 2 * 4 * item_floats(rows) * items_of_round(rows);
  }
  static constexpr int most_shared_bytes() {
    int most = 0;
    for (int rows = 1; rows <= kInputs; ++rows) most = std::max(most, shared_bytes(rows));
    return most;
  }
  static_assert(items_of_round(kInputs) >= kWarps);
};

struct FewRowsArgs {
  Gemm gemm;
  int64_t first_gemm = 0;    // of the batch, in this launch
  std::uint32_t blocks = 1;  // of one gemm
  std::int32_t tiles = 0, spans = 0;
  std::int32_t round = 0;                        // items; a multiple of kWarps
  std::int32_t span_shift = 0;                   // 2^it spans are computed at once, or more
  std::int32_t last_bytes = 0, last_groups = 0;  // of the last span of a row
  std::int32_t whole_spans = 0, whole_tiles = 0;
  bool has_small_stride = false;   // 16 rows of the weight are within 2^30 bytes
  bool has_input_words = false;    // rows of the input are aligned words of 8 bytes
  bool has_scale_vectors = false;  // rows of its scales are aligned vectors
  bool stores_vectors = false;     // four neighbouring outputs are an aligned vector
  bool waits = false;              // the input is written by the kernel before
};

// --- What a block does ---------------------------------------------------------------------------

// The block's share of the tiles: the first blocks have one more than the others.
struct Share {
  int first, behind;

  __device__ __forceinline__ explicit Share(const FewRowsArgs& args) {
    const auto blocks = static_cast<int>(args.blocks);
    const int block = static_cast<int>(blockIdx.x % args.blocks);
    const int each = args.tiles / blocks, more = args.tiles % blocks;
    first = block * each + min(block, more);
    behind = first + each + (block < more ? 1 : 0);
  }
};

// Tiles side by side, 2^shift of them, with up to eight rows of the input. A step is an item of
// each warp: neighbouring warps have 2^span_shift neighbouring spans of a tile, and the next ones
// have the same spans of the next tile. The steps of the same spans follow each other.
struct Pass {
  int number = 0;
  int tile;
  int shift, span_shift;  // shift: negative behind the last pass
  int row = 0;            // of the input

  __device__ __forceinline__ explicit Pass(const FewRowsArgs& args) : tile(Share(args).first) {
    find_shift(args);
  }
  __device__ __forceinline__ bool exists() const { return shift >= 0; }
  __device__ __forceinline__ void next(const FewRowsArgs& args) {
    ++number;
    row += 8;
    if (row < args.gemm.m) return;
    row = 0;
    tile += 1 << shift;
    find_shift(args);
  }
  __device__ __forceinline__ int tiles() const { return 1 << shift; }
  // Spans of a step; of the tiles of a step, the logarithm.
  __device__ __forceinline__ int spans_at_once() const { return 1 << span_shift; }
  __device__ __forceinline__ int tile_shift() const { return 3 - span_shift; }
  // Of the steps of the same spans, the logarithm.
  __device__ __forceinline__ int step_shift() const { return shift - tile_shift(); }
  __device__ __forceinline__ int steps(const FewRowsArgs& args) const {
    return (args.spans + spans_at_once() - 1) >> span_shift << step_shift();
  }

 private:
  __device__ __forceinline__ void find_shift(const FewRowsArgs& args) {
    const int left = Share(args).behind - tile;
    shift = left >= 8 ? 3 : left >= 4 ? 2 : left >= 2 ? 1 : left - 1;
    span_shift = max(3 - shift, args.span_shift);
  }
};

// One of a warp's items.
struct Item {
  Pass pass;
  int tile, span;
  int number;  // in the pass
  int left;    // steps of the same spans, this one included

  __device__ __forceinline__ explicit Item(const FewRowsArgs& args) : pass(args) { enter(args); }
  __device__ __forceinline__ bool exists() const { return pass.exists(); }
  // Whether it is the first one of its span in the pass.
  __device__ __forceinline__ bool begins_span() const { return left == 1 << pass.step_shift(); }
  // Goes to the next one.
  __device__ __forceinline__ void advance(const FewRowsArgs& args) {
    number += 8;
    if (--left > 0) {
      tile += 1 << pass.tile_shift();
      return;
    }
    span += pass.spans_at_once();
    if (span < args.spans) return begin_span();
    pass.next(args);
    enter(args);
  }

 private:
  __device__ __forceinline__ void begin_span() {
    tile = pass.tile + (own_warp() >> pass.span_shift);
    left = 1 << pass.step_shift();
  }
  // In the last steps of a pass, there are not spans for all warps.
  __device__ __forceinline__ void enter(const FewRowsArgs& args) {
    for (; pass.exists(); pass.next(args)) {
      span = own_warp() & (pass.spans_at_once() - 1);
      if (span < args.spans) break;
    }
    number = own_warp();
    begin_span();
  }
};

// --- The weight ----------------------------------------------------------------------------------

// Copies of items to shared memory. Neighbouring lanes have neighbouring vectors of a row.
template <class Tile>
class Copies {
  static constexpr int kVectors = Tile::kVectors, kAll = Tile::kWeights * kVectors;
  static constexpr int kOwn = (kAll + cuda::kWarp - 1) / cuda::kWarp;  // of a lane, at most

 public:
  __device__ __forceinline__ Copies(const FewRowsArgs& args, cuda::SharedAddress ring)
      : args_(args), item_(args), ring_(ring) {
#pragma unroll
    for (int i = 0; i < kOwn; ++i)
      offsets_[i] = row(i) * static_cast<int>(args.gemm.weight.row_stride) + vector(i) * 16;
  }

  // Begins to copy the next item, if there is one.
  __device__ __forceinline__ void begin(int stage) {
    if (item_.exists()) {
      const cuda::SharedAddress to =
          ring_ + static_cast<cuda::SharedAddress>(stage * Tile::kStageBytes);
      if (args_.has_small_stride && item_.span < args_.whole_spans &&
          item_.tile < args_.whole_tiles)
        copy_whole(to);
      else
        copy(to);
      item_.advance(args_);
    }
    cuda::end_copy_group();
  }

 private:
  // Of the lane's vector i, the row, and the number in the row.
  __device__ __forceinline__ static int row(int i) { return (own_lane() + i * 32) / kVectors; }
  __device__ __forceinline__ static int vector(int i) { return (own_lane() + i * 32) % kVectors; }
  __device__ __forceinline__ static bool exists(int i) {
    return (i + 1) * cuda::kWarp <= kAll || own_lane() + i * cuda::kWarp < kAll;
  }
  __device__ __forceinline__ static cuda::SharedAddress place(int i) {
    constexpr int kPadding = Tile::kPitch - kVectors * 16;
    const int padding = kPadding == 0 ? 0 : row(i) * kPadding;
    return static_cast<cuda::SharedAddress>((own_lane() + i * 32) * 16 + padding);
  }
  // All rows exist, and all bytes of the span.
  __device__ __forceinline__ void copy_whole(cuda::SharedAddress to) const {
    const std::uint8_t* const first =
        args_.gemm.weight.data +
        int64_t{item_.tile} * static_cast<int>(args_.gemm.weight.row_stride * Tile::kWeights) +
        int64_t{item_.span} * Tile::kSpanBytes;
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
      const std::uint8_t* const from = first + offsets_[i];
      const int past = Tile::kAligned ? 0 : cuda::misalignment<16>(from);
      // Of a row, only the last vector may have none of the bytes.
      const bool needed = Tile::kAligned || vector(i) < kVectors - 1 ||
                          (kVectors - 1) * 16 - Tile::kSpanBytes < past;
      if (exists(i) && needed) cuda::copy_async(to + place(i), from - past);
    }
  }
  __device__ __forceinline__ void copy(cuda::SharedAddress to) const {
    const int bytes = item_.span < args_.whole_spans ? Tile::kSpanBytes : args_.last_bytes;
#pragma unroll 1
    for (int i = 0; i < kOwn; ++i) {
      if (!exists(i)) break;
      const std::uint8_t* const from =
          row_of(args_.gemm, item_.tile, row(i)) + int64_t{item_.span} * Tile::kSpanBytes;
      const int past = Tile::kAligned ? 0 : cuda::misalignment<16>(from);
      const int at = vector(i) * 16;
      if (at < past + bytes) cuda::copy_async(to + place(i), from - past + at);
    }
  }

  const FewRowsArgs& args_;
  Item item_;
  cuda::SharedAddress ring_;
  int offsets_[kOwn];  // of the lane's vectors, where has_small_stride
};

// --- The input -----------------------------------------------------------------------------------

// What a lane needs of a span of the input: the codes of row lane / 4, the words for mma.sync, and
// the scales of rows 2 (lane % 4) and the next. Of four rows, each takes the place of two, and a
// lane needs the scales of row lane % 4. Where the type has minima, it needs these rows' scales
// times the sums of the codes of a sub-block, too.
template <class B, int kOwn>
struct SpanInput {
  static constexpr int kGroups = kSpan / kGroup;
  static constexpr int kTotals = gguf::Run<B>::kHasMinimum ? kSpan / B::kSubBlock : 1;
  std::uint32_t codes[kGroups][2];
  float scales[kOwn][kGroups];
  float totals[kOwn][kTotals];

  // The words for mma.sync of sub-block i.
  __device__ __forceinline__ void words(int i, std::uint32_t (&b)[B::kSubBlock / 16]) const {
    constexpr int kOfGroup = kGroup / B::kSubBlock;
#pragma unroll
    for (int j = 0; j < B::kSubBlock / 16; ++j) b[j] = codes[i / kOfGroup][i % kOfGroup + j];
  }
  __device__ __forceinline__ void find_totals() {
    if constexpr (gguf::Run<B>::kHasMinimum) {
#pragma unroll
      for (int i = 0; i < kTotals; ++i) {
        std::uint32_t b[B::kSubBlock / 16];
        words(i, b);
        std::int32_t sums[4];
        multiply_ones<B>(sums, b);
#pragma unroll
        for (int j = 0; j < kOwn; ++j)
          totals[j][i] = scales[j][i * B::kSubBlock / kGroup] * float_of(sums[j], kStart);
      }
    }
  }
};

// Where a lane finds these in a pass. Rows behind the last are the last one again.
template <class Tile>
class InputRows {
  using Input = SpanInput<typename Tile::B, Tile::kOwnInputs>;
  static constexpr int kOwn = Tile::kOwnInputs, kGroups = Input::kGroups;
  static constexpr bool kNeighbours = Tile::kNeighbours;

 public:
  __device__ __forceinline__ void enter(const FewRowsArgs& args, const Moved& moved,
                                        int first_row) {
    const int t = own_lane() % 4, last = static_cast<int>(args.gemm.m) - 1;
    codes_ = moved.input +
             min(first_row + own_lane() / 4 * kOwn / 2, last) * args.gemm.input.row_stride +
             t * (kNeighbours ? 8 : 4);
#pragma unroll
    for (int i = 0; i < kOwn; ++i)
      scales_[i] = moved.input_scale +
                   min(first_row + t * kOwn + i, last) * args.gemm.epilogue.input_scale_row;
  }
  // `groups`: of the span.
  __device__ __forceinline__ void load(Input& input, const FewRowsArgs& args, int span,
                                       int groups) const {
    const std::uint8_t* const codes = codes_ + int64_t{span} * kSpan;
    if (groups == kGroups && args.has_input_words)
      load_words(codes, input.codes);
    else
      load_bytes(codes, groups, input.codes);
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
      const float* const row = scales_[i] + int64_t{span} * kGroups;
      if (groups == kGroups && args.has_scale_vectors)
        load_vectors(row, input.scales[i]);
      else
        load_floats(row, groups, input.scales[i]);
    }
  }

 private:
  __device__ __forceinline__ static void load_words(const std::uint8_t* from,
                                                    std::uint32_t (&codes)[kGroups][2]) {
#pragma unroll
    for (int i = 0; i < kGroups; ++i) {
      const std::uint8_t* const own = from + i * kGroup;
      if constexpr (kNeighbours) {
        const uint2 both = __ldg(reinterpret_cast<const uint2*>(own));
        codes[i][0] = both.x;
        codes[i][1] = both.y;
      } else {
        codes[i][0] = __ldg(reinterpret_cast<const std::uint32_t*>(own));
        codes[i][1] = __ldg(reinterpret_cast<const std::uint32_t*>(own + 16));
      }
    }
  }
  __device__ __forceinline__ static std::uint32_t four_bytes(const std::uint8_t* from) {
    std::uint32_t word = 0;
#pragma unroll
    for (int i = 0; i < 4; ++i) word |= static_cast<std::uint32_t>(__ldg(from + i)) << 8 * i;
    return word;
  }
  // Without alignment; 0 for groups that there are none of.
  __device__ __forceinline__ static void load_bytes(const std::uint8_t* from, int groups,
                                                    std::uint32_t (&codes)[kGroups][2]) {
#pragma unroll
    for (int i = 0; i < kGroups; ++i) {
      codes[i][0] = codes[i][1] = 0;
      if (i >= groups) continue;
      codes[i][0] = four_bytes(from + i * kGroup);
      codes[i][1] = four_bytes(from + i * kGroup + (kNeighbours ? 4 : 16));
    }
  }
  __device__ __forceinline__ static void load_vectors(const float* from, float (&scales)[kGroups]) {
#pragma unroll
    for (int i = 0; i < kGroups; i += 4) {
      const float4 four = __ldg(reinterpret_cast<const float4*>(from + i));
      scales[i] = four.x;
      scales[i + 1] = four.y;
      scales[i + 2] = four.z;
      scales[i + 3] = four.w;
    }
  }
  __device__ __forceinline__ static void load_floats(const float* from, int groups,
                                                     float (&scales)[kGroups]) {
#pragma unroll
    for (int i = 0; i < kGroups; ++i) scales[i] = i < groups ? __ldg(from + i) : 0;
  }

  const std::uint8_t* codes_;
  const float* scales_[kOwn];
};

// --- An item -------------------------------------------------------------------------------------

// The chains of an item. sums[i][j]: row lane / 4 + 8 i of the weight with the lane's row j of the
// input. `scales`: as unpack_scales() wrote them.
template <class Tile>
__device__ __forceinline__ void multiply_span(
    const typename Tile::Row (&rows)[2], const float* scales,
    const SpanInput<typename Tile::B, Tile::kOwnInputs>& input,
    float (&sums)[2][Tile::kOwnInputs]) {
  using B = typename Tile::B;
  using F = Fragments<B>;
  const float* const own = scales + own_lane() / 4 * 4;
  float scale[2][4], minimum[2][4];
#pragma unroll
  for (int i = 0; i < 2 * Tile::kOwnInputs; ++i) sums[i % 2][i / 2] = 0;
#pragma unroll
  for (int i = 0; i < Tile::kSubBlocks; ++i) {
    if (i % 4 == 0) {
#pragma unroll
      for (int row = 0; row < 2; ++row) {
        load_four_floats(own + row * 32 + i / 4 * Tile::kScalePitch, scale[row]);
        if constexpr (Tile::kHasMinimum)
          load_four_floats(own + row * 32 + (Tile::kSubBlocks + i) / 4 * Tile::kScalePitch,
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
      for (int j = 0; j < Tile::kOwnInputs; ++j) {
        float& sum = sums[row][j];
        sum = __fmaf_rn(scale[row][i % 4] * input.scales[j][i * B::kSubBlock / kGroup],
                        float_of(dots[row * 2 + j], start_of<B>(i)), sum);
        if constexpr (Tile::kHasMinimum)
          sum = __fmaf_rn(minimum[row][i % 4], input.totals[j][i], sum);
      }
  }
}

// --- Outputs -------------------------------------------------------------------------------------

// A lane has four neighbouring outputs of a row.
class TileSums {
 public:
  __device__ __forceinline__ TileSums(int rows, int pitch)
      : row_(static_cast<int>(threadIdx.x) % cuda::kWarp / 4),
        column_(static_cast<int>(threadIdx.x) % 4 * 4),
        at_(row_ * pitch + column_),
        exists_(row_ < rows) {}

  // Adds the items of a round that are of a tile of the pass.
  __device__ __forceinline__ void add_round(const FewRowsArgs& args, const Pass& pass, int tile,
                                            int first, int last, const float* sums,
                                            int item_floats) {
    const int step = tile >> pass.tile_shift();
    const int warp = (tile & ((1 << pass.tile_shift()) - 1)) << pass.span_shift;
    for (int i = first / 8 >> pass.step_shift();; ++i) {
      const int number = ((i << pass.step_shift()) + step) * 8 + warp;
      if (number >= last) return;
      if (number < first) continue;
      const int count = min(pass.spans_at_once(), args.spans - (i << pass.span_shift));
      const float* own = sums + (number - first) * item_floats;
#pragma unroll 4
      for (int j = 0; j < count; ++j, own += item_floats) add(own);
    }
  }
  // `row`, `column`: of the tile's first output.
  __device__ __forceinline__ void store(const Gemm& gemm, int64_t row, int64_t column,
                                        bool vectors) const {
    if (row + row_ < gemm.m) store_four(gemm, row + row_, column + column_, totals_, vectors);
  }

 private:
  // `sums`: of an item.
  __device__ __forceinline__ void add(const float* sums) {
    if (!exists_) return;
    float four[4];
    load_four_floats(sums + at_, four);
#pragma unroll
    for (int i = 0; i < 4; ++i) totals_[i] += four[i];
  }

  int row_, column_, at_;
  bool exists_;
  float totals_[4] = {};
};

// --- The kernel ----------------------------------------------------------------------------------

// Computes a warp's items. `moved`: what the gemm of a batch has of its own, in shared memory.
template <class Tile>
class Items {
  using B = typename Tile::B;

 public:
  __device__ __forceinline__ Items(const FewRowsArgs& args, const Moved& moved,
                                   std::uint8_t* shared)
      : args_(args),
        moved_(moved),
        item_(args),
        ring_(shared + own_warp() * Tile::kStages * Tile::kStageBytes),
        scales_(reinterpret_cast<float*>(shared + Tile::kRingBytes) +
                own_warp() * Tile::kScaleVectors * Tile::kScalePitch) {}
  __device__ __forceinline__ bool in(const Pass& pass, int last) const {
    return item_.pass.number == pass.number && item_.exists() && item_.number < last;
  }
  __device__ __forceinline__ int number() const { return item_.number; }

  // Computes the next item. `to`: where its sums go, by row of the input, of which there are
  // `rows`.
  __device__ __forceinline__ void compute(Copies<Tile>& copies, float* to, int rows) {
    const int span = item_.span;
    const int groups = span == args_.spans - 1 ? args_.last_groups : kSpan / kGroup;
    if (item_.begins_span()) {
      InputRows<Tile> own;
      own.enter(args_, moved_, item_.pass.row);
      own.load(input_, args_, span, groups);
      input_.find_totals();
    }
    find_rows(span);
    cuda::wait_for_copy_groups<Tile::kStages - 1>();
    __syncwarp();
    const auto* const stage =
        reinterpret_cast<const std::uint32_t*>(ring_ + stage_ * Tile::kStageBytes);
    unpack(stage, groups);
    __syncwarp();
    const typename Tile::Row two[2] = {row_words(stage, own_lane() / 4, 0),
                                       row_words(stage, own_lane() / 4 + 8, 1)};
    float sums[2][Tile::kOwnInputs];
    multiply_span<Tile>(two, scales_, input_, sums);
#pragma unroll
    for (int j = 0; j < Tile::kOwnInputs; ++j) {
      const int row = own_lane() % 4 * Tile::kOwnInputs + j;
      if (row >= rows) continue;
      float* const own = to + row * Tile::kSumPitch + own_lane() / 4;
      own[0] = sums[0][j];
      own[8] = sums[1][j];
    }
    __syncwarp();
    copies.begin(stage_);
    stage_ = stage_ + 1 == Tile::kStages ? 0 : stage_ + 1;
    item_.advance(args_);
  }

 private:
  __device__ __forceinline__ void find_rows(int span) {
    if constexpr (Tile::kAligned) return;
    const int rows[3] = {own_lane() / 4, own_lane() / 4 + 8, own_lane() / 2};
    const int tile = item_.tile;
#pragma unroll
    for (int i = 0; i < 3; ++i)
      past_[i] =
          cuda::misalignment<16>(row_of(args_.gemm, tile, rows[i]) + span * Tile::kSpanBytes);
  }
  // Two lanes have a row.
  __device__ __forceinline__ void unpack(const std::uint32_t* stage, int groups) const {
    constexpr int kHalf = kHalfSubBlocks<B>;
    const int row = own_lane() / 2, half = own_lane() % 2;
    HalfScales<B> scales, minima;
    unpack_scales<B>(row_words(stage, row, 2), half, groups, scales, minima);
    float* const to = scales_ + row * 4 + half * (kHalf / 4) * Tile::kScalePitch;
#pragma unroll
    for (int i = 0; i < kHalf; i += 4) {
      store_four_floats(to + i / 4 * Tile::kScalePitch, scales[i], scales[i + 1], scales[i + 2],
                        scales[i + 3]);
      if constexpr (Tile::kHasMinimum)
        store_four_floats(to + (Tile::kSubBlocks + i) / 4 * Tile::kScalePitch, minima[i],
                          minima[i + 1], minima[i + 2], minima[i + 3]);
    }
  }
  // A row of a stage, by the row's place in past_.
  __device__ __forceinline__ typename Tile::Row row_words(const std::uint32_t* stage, int row,
                                                          int place) const {
    return {stage, row * Tile::kPitch + static_cast<int>(past_[place])};
  }

  const FewRowsArgs& args_;
  const Moved& moved_;
  Item item_;
  SpanInput<B, Tile::kOwnInputs> input_;
  unsigned past_[3] = {};
  std::uint8_t* ring_;
  float* scales_;
  int stage_ = 0;
};

template <class Tile>
__global__ void __launch_bounds__(Tile::kThreads, Tile::kBlocks)
    multiply_few_rows(const __grid_constant__ FewRowsArgs args) {
  __shared__ Moved moved;
  auto* const shared = static_cast<std::uint8_t*>(cuda::dynamic_shared());
  Pass pass(args);
  Copies<Tile> copies(
      args, cuda::shared_address_of(shared + own_warp() * Tile::kStages * Tile::kStageBytes));
#pragma unroll
  for (int i = 0; i < Tile::kStages; ++i) copies.begin(i);
  if (threadIdx.x == 0) moved.find(args.gemm, args.first_gemm + blockIdx.x / args.blocks);
  if (args.waits) cuda::wait_for_previous();
  __syncthreads();
  Items<Tile> items(args, moved, shared);
  const int rows = static_cast<int>(min(args.gemm.m, int64_t{Tile::kInputs}));
  const int item_floats = Tile::item_floats(rows);
  float* const all_sums = reinterpret_cast<float*>(shared + Tile::kRingBytes + Tile::kScaleBytes);
  int parity = 0;
#pragma unroll 1
  for (; pass.exists(); pass.next(args)) {
    const int count = pass.steps(args) * Tile::kWarps;
    // Which warp adds up which tile: another one in every pass.
    const int tile = (own_warp() + pass.number) % Tile::kWarps;
    TileSums totals(rows, Tile::kSumPitch);
#pragma unroll 1
    for (int first = 0; first < count; first += args.round) {
      const int last = min(first + args.round, count);
      float* const sums = all_sums + parity * args.round * item_floats;
#pragma unroll 1
      while (items.in(pass, last))
        items.compute(copies, sums + (items.number() - first) * item_floats, rows);
      __syncthreads();
      if (tile < pass.tiles()) totals.add_round(args, pass, tile, first, last, sums, item_floats);
      parity ^= 1;
    }
    if (tile < pass.tiles()) {
      Gemm own = args.gemm;
      own.output = moved.output;
      own.epilogue.residual = moved.residual;
      totals.store(own, pass.row, int64_t{pass.tile + tile} * Tile::kWeights, args.stores_vectors);
    }
  }
}

}  // namespace planq::linear_gguf
