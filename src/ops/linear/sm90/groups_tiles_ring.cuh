// What the kernels of groups_tiles.cuh bring to shared memory, and how: their shapes, the order of
// slices, and the ring of stages, which TMA and warps for statistics fill.
#pragma once

#include "cuda/divider.cuh"
#include "cuda/launch.cuh"
#include "cuda/mbarrier.cuh"
#include "cuda/mma.cuh"
#include "cuda/tensor_map.cuh"
#include "cuda/wgmma.cuh"
#include "ops/linear/sm90/epilogue.cuh"
#include "ops/linear/sm90/expert_tiles.cuh"
#include "ops/linear/sm90/heuristics.h"
#include "ops/linear/sm90/slices.cuh"
#include "ops/linear/weight_only/register_codes.cuh"

namespace planq::linear::sm90::groups::tiles {

inline constexpr int kSlice = math::kTensorCoreSlice, kStep = 16, kSteps = kSlice / kStep;
inline constexpr int kHalf = 64, kHalves = kSlice / kHalf;
inline constexpr int kHalfSteps = kHalf / kStep;
inline constexpr int kGroupThreads = 128, kGroupWarps = kGroupThreads / cuda::kWarp;
inline constexpr int kGroupColumns = cuda::kWgmmaRows, kWarpColumns = kGroupColumns / kGroupWarps;
inline constexpr int kStatisticWarps = 3;

// A kernel: see TileWidth in heuristics.h. T: the type of the numbers. kCodes: how codes become
// numbers; 4-bit ones always by a table. kRun: terms of a run, 64 or 128. kShifted: codes have zero
// points.
template <class T_, RegisterCodes kCodes_, int kTokens_, int kOwners_, int kSharing_, int kRun_,
          bool kShifted_>
struct Shape {
  using T = T_;
  static constexpr int kBits = has_bytes(kCodes_) ? 8 : 4;
  using Decoder = std::conditional_t<kBits == 4, TableLanes<T, kShifted_>, ByteLanes<T, kCodes_>>;
  static constexpr bool kShifted = kShifted_;
  static constexpr int kTokens = kTokens_, kOwners = kOwners_, kSharing = kSharing_, kRun = kRun_;
  static constexpr int kSums = kTokens / 2;  // of a thread
  static constexpr int kGroups = kOwners * kSharing;
  static constexpr int kColumns = kOwners * kGroupColumns;
  static constexpr int kThreads = (kGroups + 1) * kGroupThreads;
  // Of a thread that copies, and of one that multiplies.
  static constexpr int kCopyRegisters = 32;
  static constexpr int kGroupRegisters = std::min(
      240, ((65536 / kThreads / 8 * 8) * (kGroups + 1) - kCopyRegisters) / kGroups / 8 * 8);

  static constexpr int kRowBytes = Decoder::kRowBytes;  // of a column in a slice
  static constexpr int kCodeBytes = kColumns * kRowBytes;
  static constexpr int kInputBytes = kTokens * kSlice * 2;
  static constexpr int kScaleBytes = kColumns * static_cast<int>(sizeof(float2));
  static constexpr int kZeroPointBytes = kShifted ? kColumns * static_cast<int>(sizeof(int2)) : 0;
  static constexpr int kStageBytes = kCodeBytes + kInputBytes + kScaleBytes + kZeroPointBytes;
  static constexpr int kHandedBytes = kSharing > 1 ? kOwners * kGroupThreads * kSums * 4 : 0;
  // Staging of the epilogue, for each warp: its columns of some tokens at a time.
  static constexpr int kOutTokens = 16;
  static constexpr int kOutPitch = kWarpColumns + 4;
  static constexpr int kOutBytes = kOwners * kGroupWarps * kOutTokens * kOutPitch * 4;
  // Shared memory: the stages of codes, of the input, of scales and of zero points, the table, the
  // total that goes from group to group, the staging, and the barriers.
  static constexpr int kMostStages = 12, kBarrierBytes = 2 * kMostStages * 8;
  static constexpr int kTableBytes = kBits == 4 ? kPairBytes : 0;
  static constexpr int kStages = std::min(
      kMostStages,
      (227 * 1024 - 1024 - kTableBytes - kHandedBytes - kOutBytes - kBarrierBytes) / kStageBytes);
  static constexpr int kInputsAt = kStages * kCodeBytes;
  static constexpr int kScalesAt = kInputsAt + kStages * kInputBytes;
  static constexpr int kZeroPointsAt = kScalesAt + kStages * kScaleBytes;
  static constexpr int kTableAt = kZeroPointsAt + kStages * kZeroPointBytes;
  static constexpr int kHandedAt = kTableAt + kTableBytes;
  static constexpr int kBarriersAt = kHandedAt + kHandedBytes + kOutBytes;
  static constexpr int kSharedBytes = kBarriersAt + kBarrierBytes;
  static_assert(kInputsAt % 1024 == 0 && kSharedBytes <= 227 * 1024);
  // A group releases a stage only when it has begun its next one.
  static_assert(kStages > kSharing);
};

struct Args : CodesArgs {
  using CodesArgs::CodesArgs;

  cuda::TensorMap codes_map, input_map;
  int input_step;  // what a step along the batch adds to the third coordinate of the input's map
  sm90::Outputs outputs;
  cuda::Divider segments;  // divides by the halves of a segment
  cuda::Divider nested;
  std::int32_t column_segments;  // statistics from a column to the next
  bool by_pairs;  // the scales of a slice's two halves are neighbours, aligned to 8 bytes
  std::int32_t scale_shift, zero_point_shift;  // log2 of the bytes of a scale, and a zero point
  std::int32_t slices, span_slices;            // that k and a span have
  std::int32_t down, across, tiles;
  std::uint32_t table_pitch;  // bytes of an entry; an argument, so that it is multiplied with
  // Of experts: their tiles, which a kernel before this one has listed, and rows of a weight. A
  // batch is then an expert.
  const sm90::ExpertTile* expert_tiles = nullptr;
  const std::int32_t* expert_count = nullptr;
  std::int32_t expert_rows = 0;
  int waits;  // for the kernel before, which may still be writing what is read here
};

// --- The ring -----------------------------------------------------------------------------------

// The order in which slices pass through the ring. Groups that share columns take turns, each with
// a span of its own. Then there may be slices beyond k.
template <class S>
struct SliceOrder {
  int rank = 0;    // of the group
  int round = 0;   // the group's spans before this one
  int within = 0;  // of the span

  __device__ __forceinline__ int slice(const Args& args) const {
    return (round * S::kSharing + rank) * args.span_slices + within;
  }
  __device__ __forceinline__ int span() const { return round * S::kSharing + rank; }
  __device__ __forceinline__ bool ends_span(const Args& args) const {
    return within + 1 == args.span_slices || ends_tile(args);
  }
  __device__ __forceinline__ bool ends_tile(const Args& args) const {
    if constexpr (S::kSharing == 1) return slice(args) + 1 == args.slices;
    return round + 1 == math::kSpans / S::kSharing && within + 1 == args.span_slices;
  }
  // To the next slice of the group in the tile.
  __device__ __forceinline__ void advance(const Args& args) {
    if (++within < args.span_slices) return;
    within = 0;
    ++round;
  }
  // To the next slice of any group. Returns false, and is at the first, if there is no more.
  __device__ __forceinline__ bool advance_all(const Args& args) {
    if (++rank < S::kSharing) return true;
    rank = 0;
    const bool ends = ends_tile(args);
    advance(args);
    if (ends) round = within = 0;
    return !ends;
  }
};

// The ring. A stage is a slice of a tile. TMA brings codes and inputs, warps bring the statistics.
template <class S>
struct Ring {
  std::uint8_t* codes;
  std::uint8_t* inputs;
  float2* scales;  // of the two halves of each column
  int2* zero_points;
  cuda::Barrier* full;
  cuda::Barrier* empty;

  // Called by one thread.
  __device__ __forceinline__ void open() const {
    for (int i = 0; i < S::kStages; ++i) {
      full[i].init(2);  // TMA and a warp for statistics
      empty[i].init(S::kOwners * kGroupWarps);
    }
    cuda::publish_barriers();
  }
};

// A tile of the output: its first row and column, and its gemm of the batch.
struct Tile {
  int m, n, batch;
  int end;  // of the rows

  template <class S>
  static __device__ __forceinline__ Tile of(const Args& args, int index) {
    if (args.expert_tiles) {
      const int count = *args.expert_count;
      const sm90::ExpertTile own = args.expert_tiles[index % count];
      return {own.row, index / count * S::kColumns, own.expert, own.end};
    }
    const int down = index % args.down, rest = index / args.down;
    return {down * S::kTokens, rest % args.across * S::kColumns, rest / args.across,
            static_cast<int>(args.outputs.rows)};
  }
  // The first row of the weight.
  __device__ __forceinline__ int weight_row(const Args& args) const {
    return n + batch * args.expert_rows;
  }
};

// All tiles.
__device__ __forceinline__ int count_tiles(const Args& args) {
  return args.expert_tiles ? *args.expert_count * args.across : args.tiles;
}

// Prefetches the statistics of a tile's columns to the L2 cache.
template <class S>
__device__ __forceinline__ void prefetch_statistics(const Args& args, int index) {
  if (index >= count_tiles(args)) return;
  const WeightCodes& codes = args.codes;
  const auto all = reinterpret_cast<std::uintptr_t>(codes.scales.stored.absmax);
  const std::int64_t each = std::int64_t{args.column_segments} << args.scale_shift;
  const std::int64_t n = Tile::of<S>(args, index).weight_row(args),
                     last = min(n + S::kColumns, codes.rows);
  const auto begin = (all + n * each + 15) & ~std::uintptr_t{15};
  const auto end = (all + last * each) & ~std::uintptr_t{15};
  if (end > begin) cuda::prefetch_bytes(begin, static_cast<std::uint32_t>(end - begin));
}

// What the thread does that has TMA fill the stages.
template <class S>
__device__ __forceinline__ void copy_slices(const Args& args, const Ring<S>& ring) {
  cuda::StageCursor<S::kStages> cursor;
  const int tiles = count_tiles(args);
  prefetch_statistics<S>(args, blockIdx.x);
#pragma unroll 1
  for (int index = blockIdx.x; index < tiles; index += gridDim.x) {
    const Tile tile = Tile::of<S>(args, index);
    prefetch_statistics<S>(args, index + gridDim.x);
    SliceOrder<S> order;
#pragma unroll 1
    do {
      const int slice = order.slice(args);
      ring.empty[cursor.stage].wait(cursor.parity ^ 1);
      cuda::Barrier& full = ring.full[cursor.stage];
      full.arrive_and_expect(S::kCodeBytes + S::kInputBytes);
      cuda::copy_box(ring.codes + cursor.stage * S::kCodeBytes, args.codes_map,
                     slice * S::kRowBytes, tile.weight_row(args), 0, full);
      std::uint8_t* inputs = ring.inputs + cursor.stage * S::kInputBytes;
#pragma unroll
      for (int k_block = 0; k_block < 2; ++k_block)
        cuda::copy_box(inputs + k_block * S::kTokens * cuda::kBoxBytes, args.input_map,
                       (slice * 2 + k_block) * cuda::kBoxBytes, tile.m,
                       tile.batch * args.input_step, full);
      cursor.advance();
    } while (order.advance_all(args));
  }
}

// What the threads of kStatisticWarps warps do: they copy statistics to the stages. Warps take
// slices in turn, since what a warp does for a slice, one thing after another, may take longer than
// to multiply it. A lane has every kStep-th column of the tile, from its own number on.
template <class S>
class StatisticCopies {
 public:
  static constexpr int kStep = cuda::kWarp;
  static constexpr int kColumns = S::kColumns / kStep;  // of a lane
  // Slices of a warp whose copies are under way. A slice is complete when kAhead more of the warp
  // have been begun. Meanwhile each of the sharing groups holds a stage until it begins its next,
  // and one more stage has to be free.
  static constexpr int kAhead = std::min(2, (S::kStages - S::kSharing - 1) / kStatisticWarps);
  static_assert(kAhead >= 1 && S::kColumns % kStep == 0);

  __device__ __forceinline__ StatisticCopies(const Args& args, const Ring<S>& ring, int thread)
      : args_(args),
        ring_(ring),
        own_(thread % kStep),
        warp_(thread / kStep),
        tiles_(count_tiles(args)) {}

  __device__ __forceinline__ void run() {
    const int first = static_cast<int>(blockIdx.x), step = static_cast<int>(gridDim.x);
    if (first >= tiles_) return;
    const int of_tile = S::kSharing == 1 ? args_.slices : math::kSpans * args_.span_slices;
    const int slices = ((tiles_ - 1 - first) / step + 1) * of_tile;
    if (args_.codes.scales.are_nested())
      copy_all<Form::Nested>(slices);
    else if (args_.scale_shift == 2 && args_.zero_point_shift == 2)
      copy_all<Form::Words>(slices);
    else
      copy_all<Form::Narrow>(slices);
  }

 private:
  // How statistics are stored. Narrow: some have less than 4 bytes.
  enum class Form { Words, Narrow, Nested };

  // A slice of a tile, its stage, and the first statistic of each of the lane's columns.
  struct Place {
    int tile;
    SliceOrder<S> order;
    cuda::StageCursor<S::kStages> cursor;
    int first[kColumns], zero_points[kColumns];
  };

  template <Form kForm>
  __device__ __forceinline__ void copy_all(int slices) {
    const int own = (slices - warp_ + kStatisticWarps - 1) / kStatisticWarps;
    Place begun;
    enter(begun, blockIdx.x);
    advance(begun, warp_);
    Place complete = begun;
#pragma unroll 1
    for (int i = 0; i < own + kAhead; ++i) {
      if (i < own) {
        ring_.empty[begun.cursor.stage].wait(begun.cursor.parity ^ 1);
        copy<kForm>(begun, begun.cursor.stage * S::kColumns + own_);
        advance(begun, kStatisticWarps);
      }
      cuda::end_copy_group();
      if (i < kAhead) continue;
      cuda::wait_for_copy_groups<kAhead>();
      const int at = complete.cursor.stage * S::kColumns + own_;
      if constexpr (kForm == Form::Nested) restore(complete, at);
      if constexpr (kForm == Form::Narrow) widen(complete, at);
      __syncwarp();
      if (own_ == 0) ring_.full[complete.cursor.stage].arrive();
      if constexpr (kForm != Form::Words)
        advance(complete, kStatisticWarps);
      else  // the stage is all that is asked for
        for (int slice = 0; slice < kStatisticWarps; ++slice) complete.cursor.advance();
    }
  }

  __device__ __forceinline__ void enter(Place& place, int tile) const {
    place.tile = tile;
    const int n = Tile::of<S>(args_, tile).weight_row(args_) + own_;
    const int last = static_cast<int>(args_.codes.rows) - 1;
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
      const int column = min(n + c * kStep, last);
      place.first[c] = column * args_.column_segments;
      if constexpr (S::kShifted)
        place.zero_points[c] = column * static_cast<int>(args_.codes.zero_point_row);
    }
  }
  // To the slice that comes so many slices later.
  __device__ __forceinline__ void advance(Place& place, int slices) const {
    for (int i = 0; i < slices; ++i) {
      place.cursor.advance();
      if (place.order.advance_all(args_)) continue;
      const int tile = place.tile + static_cast<int>(gridDim.x);
      if (tile < tiles_) enter(place, tile);
    }
  }
  // The segment that holds a half of the slice, counted from the column's first. Slices beyond k
  // have those of the last one.
  __device__ __forceinline__ int segment(const Place& place, int half) const {
    const int slice = min(place.order.slice(args_), args_.slices - 1);
    return static_cast<int>(
        args_.segments.quotient(static_cast<std::uint32_t>(slice * kHalves + half)));
  }

  template <Form kForm>
  __device__ __forceinline__ void copy(const Place& place, int to) const {
    const cuda::SharedAddress scales = cuda::shared_address(ring_.scales + to);
    const int first = segment(place, 0), second = segment(place, 1);
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
      const int at = c * kStep * static_cast<int>(sizeof(float2));
      if constexpr (kForm == Form::Nested) {
        copy_nested(place.first[c] + first, scales + at);
        continue;
      }
      const void* from = args_.codes.scales.stored.absmax;
      const int scale = place.first[c];
      if (kForm == Form::Words && args_.by_pairs)
        cuda::copy_async<8>(scales + at, static_cast<const float*>(from) + scale + first);
      else
        copy_words(scales + at, from, scale + first, scale + second, args_.scale_shift);
      if constexpr (S::kShifted) {
        const int point = place.zero_points[c];
        copy_words(cuda::shared_address(ring_.zero_points + to) + at, args_.codes.zero_point,
                   point + first, point + second, args_.zero_point_shift);
      }
    }
  }

  // Copies the words that hold two statistics of 2^shift bytes each.
  static __device__ __forceinline__ const void* word_of(const void* from, int index, int shift) {
    const auto at = reinterpret_cast<std::uintptr_t>(from) + (std::int64_t{index} << shift);
    return reinterpret_cast<const void*>(at & ~std::uintptr_t{3});
  }
  static __device__ __forceinline__ void copy_words(cuda::SharedAddress to, const void* from,
                                                    int first, int second, int shift) {
    cuda::copy_async<4>(to, word_of(from, first, shift));
    cuda::copy_async<4>(to + 4, word_of(from, second, shift));
  }
  // Widens statistics in the words that hold them.
  __device__ __forceinline__ void widen(const Place& place, int at) const {
    const int first = segment(place, 0), second = segment(place, 1);
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
      const int scale = place.first[c], own = at + c * kStep;
      float2& scales = ring_.scales[own];
      scales = {widened_scale(scales.x, scale + first), widened_scale(scales.y, scale + second)};
      if constexpr (S::kShifted) {
        const int point = place.zero_points[c];
        int2& points = ring_.zero_points[own];
        points = {widened_point(points.x, point + first), widened_point(points.y, point + second)};
      }
    }
  }
  __device__ __forceinline__ float widened_scale(float word, int index) const {
    const SegmentScales& scales = args_.codes.scales;
    const std::uint32_t bits = __float_as_uint(word);
    if (args_.scale_shift == 2) return word;
    const std::uint32_t own = bits >> (index << args_.scale_shift & 3) * 8;
    if (args_.scale_shift == 0) return scales.value_of(static_cast<std::uint8_t>(own));
    if (scales.stored.dtype == DType::BFloat16) return __uint_as_float(own << 16);
    return math::widen(math::Half{static_cast<std::uint16_t>(own)});
  }
  __device__ __forceinline__ std::int32_t widened_point(std::int32_t word, int index) const {
    if (args_.zero_point_shift == 2) return word;
    const auto own = static_cast<std::uint32_t>(word) >> (index & 3) * 8;
    return args_.codes.zero_point_dtype == DType::Int8
               ? static_cast<std::int32_t>(static_cast<std::int8_t>(own))
               : static_cast<std::int32_t>(own & 255);
  }

  // Copies nested statistics. The codes of a slice's two statistics are in one word, and share one
  // absmax. The word and the absmax go where the two restored statistics will be.
  __device__ __forceinline__ void copy_nested(int at, cuda::SharedAddress to) const {
    const BlockStatistics& s = args_.codes.scales.stored;
    const auto word = (reinterpret_cast<std::uintptr_t>(s.absmax) + at) & ~std::uintptr_t{3};
    const auto block = args_.nested.quotient(static_cast<std::uint32_t>(at));
    cuda::copy_async<4>(to, reinterpret_cast<const void*>(word));
    cuda::copy_async<4>(to + 4, static_cast<const float*>(s.nested_absmax) + block);
  }
  __device__ __forceinline__ void restore(const Place& place, int at) const {
    const BlockStatistics& s = args_.codes.scales.stored;
    const int first = segment(place, 0), apart = segment(place, 1) - first;
    const float offset = *static_cast<const float*>(s.nested_offset);
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
      float2& own = ring_.scales[at + c * kStep];
      const auto byte = reinterpret_cast<std::uintptr_t>(s.absmax) + place.first[c] + first;
      const std::uint32_t codes = __float_as_uint(own.x) >> byte % 4 * 8;
      const float absmax = own.y;
      own = {math::restored_absmax(__ldg(s.nested_codebook + (codes & 255)), absmax, offset),
             math::restored_absmax(__ldg(s.nested_codebook + (codes >> apart * 8 & 255)), absmax,
                                   offset)};
    }
  }

  const Args& args_;
  const Ring<S>& ring_;
  int own_, warp_, tiles_;
};

}  // namespace planq::linear::sm90::groups::tiles
