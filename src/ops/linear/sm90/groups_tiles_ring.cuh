// What the kernels of groups_tiles.cuh bring to shared memory, and how: their shapes, the order of
// slices, and two rings of stages. TMA fills that of codes and inputs, warps that of statistics.
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
#include "ops/linear/sm90/scheduler.cuh"
#include "ops/linear/sm90/slices.cuh"
#include "ops/linear/weight_only/register_codes.cuh"

namespace planq::linear::sm90::groups::tiles {

inline constexpr int kSlice = math::kTensorCoreSlice, kStep = 16, kSteps = kSlice / kStep;
inline constexpr int kHalf = 64, kHalves = kSlice / kHalf;
inline constexpr int kHalfSteps = kHalf / kStep;
inline constexpr int kGroupThreads = 128, kGroupWarps = kGroupThreads / cuda::kWarp;
inline constexpr int kGroupColumns = cuda::kWgmmaRows, kWarpColumns = kGroupColumns / kGroupWarps;

// A kernel: see TileWidth in heuristics.h. T: the type of the numbers. kCodes: how codes become
// numbers. kHighFirst: of two integers in a byte, the upper one comes first. kRun: terms of a run.
template <class T_, RegisterCodes kCodes_, bool kHighFirst_, int kTokens_, int kOwners_,
          int kSharing_, int kRun_>
struct Shape {
  using T = T_;
  static constexpr int kBits = has_bytes(kCodes_) ? 8 : 4;
  using Decoder =
      std::conditional_t<kBits == 4, NibbleLanes<T, kCodes_, kHighFirst_>, ByteLanes<T, kCodes_>>;
  static constexpr bool kHasTable = kCodes_ == RegisterCodes::Table;
  // Whether codes may have zero points.
  static constexpr bool kMayShift =
      kCodes_ == RegisterCodes::Nibbles || kCodes_ == RegisterCodes::Bytes;
  static constexpr int kTokens = kTokens_, kOwners = kOwners_, kSharing = kSharing_, kRun = kRun_;
  static constexpr int kRuns = kSlice / kRun;                      // of a slice
  static constexpr int kHalfRuns = std::max(kHalf / kRun, 1);      // that begin in a half
  static constexpr int kRunSteps = std::min(kRun, kHalf) / kStep;  // in a half
  static constexpr int kSums = kTokens / 2;                        // of a thread
  // Runs whose sums a thread has in registers.
  static constexpr int kSets = kRun < kHalf ? 2 : 1;
  static constexpr int kGroups = kOwners * kSharing;
  static constexpr int kColumns = kOwners * kGroupColumns;
  static constexpr int kThreads = (kGroups + 1) * kGroupThreads;
  // Of a thread that copies, and of one that multiplies: twice two groups need what others can
  // spare.
  static constexpr int kCopyRegisters = kOwners == 2 && kSharing == 2 ? 32 : 56;
  static constexpr int kGroupRegisters = std::min(
      240, ((65536 / kThreads / 8 * 8) * (kGroups + 1) - kCopyRegisters) / kGroups / 8 * 8);
  // Halves whose numbers a thread has in registers: where there is room for two, one is decoded
  // while the other is multiplied.
  static constexpr int kHeld =
      kSums * (kSets + 1) + kHalves * kHalfSteps * 4 + 32 <= kGroupRegisters ? 2 : 1;

  static constexpr int kRowBytes = Decoder::kRowBytes;  // of a column in a slice
  static constexpr int kCodeBytes = kColumns * kRowBytes;
  static constexpr int kHalfBytes = kTokens * cuda::kBoxBytes;  // of inputs
  static constexpr int kInputBytes = kHalves * kHalfBytes;
  // A part: slices of a span whose statistics come together, so many that they are worth a thread's
  // while. A run has a row of scales, and one of shifts. Rows are so far apart that neither those
  // who write a few columns of all rows nor those who read a row meet a bank twice.
  static constexpr int kPartRuns = 8;
  static constexpr int kPartSlices = kPartRuns / kRuns;
  static constexpr int kPartPitch = kColumns + cuda::kWarp / kPartRuns;
  static constexpr int kPartWords = kPartRuns * kPartPitch;
  static constexpr int kPartBytes = kPartWords * 4 * (kMayShift ? 2 : 1);
  static constexpr int kParts = 2 * kSharing;  // stages
  // Of the warps that copy, the first has TMA copy codes and inputs, others copy statistics.
  static constexpr int kStatisticWarps = std::min(kGroupWarps - 1, kParts);
  // Totals of the spans before: they stay with a group, or go from group to group.
  static constexpr int kTotalBytes = kOwners * kGroupThreads * kSums * 4;
  static constexpr int kTableBytes = kHasTable ? kPairBytes : 0;
  // Shared memory: the stages of inputs, of codes, and of statistics, the table, the totals, and
  // the barriers.
  static constexpr int kMostStages = 12, kBarrierBytes = 2 * 8 * (kMostStages + kParts);
  static constexpr int kRoom =
      227 * 1024 - kTableBytes - kTotalBytes - kParts * kPartBytes - kBarrierBytes - 16;
  // Every stage belongs to one of the groups that share columns, and so does every stage of parts.
  // A barrier's parity tells only one phase from the next: who waits has to wait for each of them.
  static constexpr int kStages =
      std::min(kMostStages, kRoom / (kCodeBytes + kInputBytes)) / kSharing * kSharing;
  static constexpr int kCodesAt = kStages * kInputBytes;
  static constexpr int kPartsAt = kCodesAt + kStages * kCodeBytes;
  static constexpr int kTableAt = (kPartsAt + kParts * kPartBytes + 15) / 16 * 16;
  static constexpr int kTotalsAt = kTableAt + kTableBytes;
  static constexpr int kBarriersAt = kTotalsAt + kTotalBytes;
  static constexpr int kSharedBytes = kBarriersAt + kBarrierBytes;
  static_assert(kCodesAt % 1024 == 0 && kSharedBytes <= 227 * 1024);
  // A group releases a stage only when it has begun its next one.
  static_assert(kStages >= 2 * kSharing);
};

struct Args : CodesArgs {
  using CodesArgs::CodesArgs;

  cuda::TensorMap codes_map, input_map;
  int input_step;  // what a step along the batch adds to the third coordinate of the input's map
  sm90::Outputs outputs;
  cuda::Divider segments;  // divides by the slices of a segment
  cuda::Divider nested;
  std::int32_t column_segments, last_segment;  // segments from a column to the next; of a column
  std::int64_t scale_bytes, zero_point_bytes;  // from a column to the next
  std::int32_t slices, span_slices;            // that k and a span have
  std::int32_t terms;
  sm90::TileGrid grid;
  std::uint32_t table_pitch;  // bytes of an entry; an argument, so that it is multiplied with
  // Of experts: their tiles, which a kernel before this one has listed, and rows of a weight. A
  // batch is then an expert.
  const sm90::ExpertTile* expert_tiles = nullptr;
  const std::int32_t* expert_count = nullptr;
  std::int32_t expert_rows = 0;
  int waits;  // for the kernel before, which may still be writing what is read here
};

// --- Order --------------------------------------------------------------------------------------

// The order in which slices pass through the ring: tile by tile, round by round. Groups that share
// columns take turns: in a round each has a span of its own, and slices of a round come from its
// spans in turn. Then there may be slices beyond k.
template <class S>
struct Round {
  int first;   // slice of the first group's span
  int slices;  // of a span

  __device__ __forceinline__ Round(const Args& args, int round)
      : first(round * S::kSharing * args.span_slices),
        slices(S::kSharing == 1 ? min(args.span_slices, args.slices - first) : args.span_slices) {}
};
// Calls visit(round, its number) for the rounds of a tile.
template <class S, class Visit>
__device__ __forceinline__ void each_round(const Args& args, const Visit& visit) {
#pragma unroll 1
  for (int index = 0; index < math::kSpans / S::kSharing; ++index) {
    const Round<S> round(args, index);
    if (round.slices <= 0) return;
    visit(round, index);
  }
}

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
    const sm90::TilePlace place = sm90::tile_place(args.grid, static_cast<std::uint32_t>(index));
    return {place.down * S::kTokens, place.across * S::kColumns, place.batch,
            static_cast<int>(args.outputs.rows)};
  }
  // What all lanes of a warp have is uniform to the compiler, too: TMA takes nothing else.
  __device__ __forceinline__ Tile uniform() const {
    return {cuda::uniform(m), cuda::uniform(n), cuda::uniform(batch), cuda::uniform(end)};
  }
  // The first row of the weight.
  __device__ __forceinline__ int weight_row(const Args& args) const {
    return n + batch * args.expert_rows;
  }
};

// All tiles.
__device__ __forceinline__ int count_tiles(const Args& args) {
  return args.expert_tiles ? *args.expert_count * args.grid.across
                           : static_cast<int>(args.grid.count);
}

// --- The rings ----------------------------------------------------------------------------------

// A ring of kCount stages: who fills one waits until it is empty, who reads it until it is full.
template <int kCount>
struct Stages {
  cuda::Barrier* full;
  cuda::Barrier* empty;

  // Called by one thread.
  __device__ __forceinline__ void open(int readers) const {
    for (int i = 0; i < kCount; ++i) {
      full[i].init(1);
      empty[i].init(readers);
    }
  }
  // Called by every warp that has read a stage: what it has loaded is there, not only asked for.
  __device__ __forceinline__ void release(int stage) const {
    __syncwarp();
    if (threadIdx.x % cuda::kWarp == 0) empty[stage].arrive();
  }
};

// Slices: codes and inputs. Parts: statistics.
template <class S>
struct Rings {
  Stages<S::kStages> slices;
  Stages<S::kParts> parts;
  std::uint8_t *inputs, *codes, *statistics;

  __device__ __forceinline__ explicit Rings(std::uint8_t* shared)
      : inputs(shared), codes(shared + S::kCodesAt), statistics(shared + S::kPartsAt) {
    auto* const barriers = reinterpret_cast<cuda::Barrier*>(shared + S::kBarriersAt);
    slices = {barriers, barriers + S::kStages};
    parts = {slices.empty + S::kStages, slices.empty + S::kStages + S::kParts};
  }
  // Called by one thread.
  __device__ __forceinline__ void open() const {
    slices.open(S::kOwners * kGroupWarps);
    parts.open(S::kOwners * kGroupWarps);
    cuda::publish_barriers();
  }
};

// Prefetches what lies in rows of a tile's weight to the L2 cache: `each` bytes from row to row.
// Not in the weight's last row, which may have fewer.
template <class S>
__device__ __forceinline__ void prefetch_rows(const Args& args, const Tile& tile, const void* from,
                                              std::int64_t each) {
  const auto all = reinterpret_cast<std::uintptr_t>(from);
  const std::int64_t first = tile.weight_row(args),
                     last = min(first + S::kColumns, args.codes.rows - 1);
  const auto begin = (all + first * each + 15) & ~std::uintptr_t{15};
  const auto end = (all + last * each) & ~std::uintptr_t{15};
  if (from && end > begin) cuda::prefetch_bytes(begin, static_cast<std::uint32_t>(end - begin));
}
// The statistics of a tile.
template <class S>
__device__ __forceinline__ void prefetch_statistics(const Args& args, int index) {
  if (index >= count_tiles(args)) return;
  const Tile tile = Tile::of<S>(args, index);
  prefetch_rows<S>(args, tile, args.codes.scales.stored.absmax, args.scale_bytes);
  prefetch_rows<S>(args, tile, args.codes.zero_point, args.zero_point_bytes);
}

// What a warp does that has TMA copy codes and inputs. All lanes count along, so that what they
// count is uniform.
template <class S>
__device__ __forceinline__ void copy_slices(const Args& args, const Rings<S>& rings) {
  const bool leads = threadIdx.x % cuda::kWarp == 0;
  const int tiles = count_tiles(args);
  if (leads) prefetch_statistics<S>(args, blockIdx.x);
  cuda::StageCursor<S::kStages> cursor;
#pragma unroll 1
  for (int index = blockIdx.x; index < tiles; index += gridDim.x) {
    const Tile tile = Tile::of<S>(args, index).uniform();
    const int row = tile.weight_row(args), batch = tile.batch * args.input_step;
    if (leads) prefetch_statistics<S>(args, index + gridDim.x);
    each_round<S>(args, [&](const Round<S>& round, int) {
#pragma unroll 1
      for (int i = 0; i < round.slices; ++i)
#pragma unroll 1
        for (int rank = 0; rank < S::kSharing; ++rank) {
          const int slice = round.first + rank * args.span_slices + i;
          rings.slices.empty[cursor.stage].wait(cursor.parity ^ 1);
          if (leads) {
            cuda::Barrier& full = rings.slices.full[cursor.stage];
            full.arrive_and_expect(S::kCodeBytes + S::kInputBytes);
            cuda::copy_box(rings.codes + cursor.stage * S::kCodeBytes, args.codes_map,
                           slice * S::kRowBytes, row, 0, full);
            std::uint8_t* const inputs = rings.inputs + cursor.stage * S::kInputBytes;
#pragma unroll
            for (int half = 0; half < kHalves; ++half)
              cuda::copy_box(inputs + half * S::kHalfBytes, args.input_map,
                             (slice * kHalves + half) * cuda::kBoxBytes, tile.m, batch, full);
          }
          cursor.advance();
        }
    });
  }
}

// --- Statistics ---------------------------------------------------------------------------------

// What the warps for statistics do. Each fills every so many-th stage, always the same ones, so
// that it waits for every phase of a stage's barrier. A lane has one run of a part, and every so
// many-th of the tile's columns.
template <class S>
class StatisticCopies {
 public:
  __device__ __forceinline__ StatisticCopies(const Args& args, const Rings<S>& rings,
                                             cuda::SharedAddress table, int warp)
      : args_(args),
        rings_(rings),
        decoder_(args, table),
        warp_(warp),
        run_(static_cast<int>(threadIdx.x) % S::kPartRuns),
        column_(static_cast<int>(threadIdx.x) % cuda::kWarp / S::kPartRuns) {}

  __device__ __forceinline__ void run() {
    const SegmentScales& scales = args_.codes.scales;
    if (scales.are_nested()) return copy_all<Form::Nested>();
    if (scales.are_bytes()) return copy_all<Form::Bytes>();
    if (scales.stored.dtype == DType::Float32) return copy_all<Form::Words>();
    copy_all<Form::Halves>();
  }

 private:
  // How scales are stored: as float32, in 16 bits, as bytes, or as nested statistics.
  enum class Form { Words, Halves, Bytes, Nested };

  static constexpr int kColumnStep = cuda::kWarp / S::kPartRuns;
  static constexpr int kLaneColumns = S::kColumns / kColumnStep;
  static constexpr int kLoads = 8;  // of a lane that are under way
  static_assert(kLaneColumns % kLoads == 0);

  template <Form kForm>
  __device__ __forceinline__ void copy_all() const {
    const int tiles = count_tiles(args_);
    cuda::StageCursor<S::kParts> cursor;
#pragma unroll 1
    for (int index = blockIdx.x; index < tiles; index += gridDim.x) {
      const Tile tile = Tile::of<S>(args_, index);
      each_round<S>(args_, [&](const Round<S>& round, int) {
#pragma unroll 1
        for (int i = 0; i < round.slices; i += S::kPartSlices)
#pragma unroll 1
          for (int rank = 0; rank < S::kSharing; ++rank) {
            if (cursor.stage % S::kStatisticWarps == warp_) {
              rings_.parts.empty[cursor.stage].wait(cursor.parity ^ 1);
              copy<kForm>(tile, segment(round.first + rank * args_.span_slices + i), cursor.stage);
              __syncwarp();
              if (threadIdx.x % cuda::kWarp == 0) rings_.parts.full[cursor.stage].arrive();
            }
            cursor.advance();
          }
      });
    }
  }

  // The segment that the lane's run of a part belongs to, counted from the column's first. Runs
  // beyond k have those of the last one.
  __device__ __forceinline__ int segment(int slice) const {
    if constexpr (S::kRuns > 1) return min(slice * S::kRuns + run_, args_.last_segment);
    const int own = min(slice + run_, args_.slices - 1);
    return static_cast<int>(args_.segments.quotient(static_cast<std::uint32_t>(own)));
  }

  template <Form kForm>
  __device__ __forceinline__ void copy(const Tile& tile, int segment, int stage) const {
    auto* const to = reinterpret_cast<float*>(rings_.statistics + stage * S::kPartBytes) +
                     run_ * S::kPartPitch + column_;
    const int row = tile.weight_row(args_) + column_;
    copy_scales<kForm>(to, row, segment, args_.expert_tiles ? tile.batch : 0);
    if constexpr (S::kMayShift)
      if (args_.codes.zero_point) copy_shifts(to + S::kPartWords, row, segment);
  }
  // Calls store(column, load(row)) for the lane's columns. Some loads are under way together.
  template <class Load, class Store>
  __device__ __forceinline__ void each_column(int row, const Load& load, const Store& store) const {
    const int last = static_cast<int>(args_.codes.rows) - 1;
#pragma unroll 1
    for (int first = 0; first < kLaneColumns; first += kLoads) {
      decltype(load(0)) loaded[kLoads];
#pragma unroll
      for (int i = 0; i < kLoads; ++i) loaded[i] = load(min(row + (first + i) * kColumnStep, last));
#pragma unroll
      for (int i = 0; i < kLoads; ++i) store((first + i) * kColumnStep, loaded[i]);
    }
  }

  template <Form kForm>
  __device__ __forceinline__ void copy_scales(float* to, int row, int segment, int expert) const {
    const SegmentScales& scales = args_.codes.scales;
    const BlockStatistics& stored = scales.stored;
    const auto at = [&](int own) { return own * args_.column_segments + segment; };
    if constexpr (kForm == Form::Words) {
      const auto* from = static_cast<const float*>(stored.absmax);
      each_column(
          row, [&](int own) { return __ldg(from + at(own)); },
          [&](int column, float scale) { to[column] = scale; });
    } else if constexpr (kForm == Form::Halves) {
      const auto* from = static_cast<const std::uint16_t*>(stored.absmax);
      const bool is_half = stored.dtype == DType::Float16;
      each_column(
          row, [&](int own) { return __ldg(from + at(own)); },
          [&](int column, std::uint16_t bits) {
            to[column] = is_half ? math::widen(math::Half{bits})
                                 : __uint_as_float(static_cast<std::uint32_t>(bits) << 16);
          });
    } else if constexpr (kForm == Form::Bytes) {
      const auto* from = static_cast<const std::uint8_t*>(stored.absmax);
      const float tensor_scale = scales.tensor_scale ? scales.tensor_scale[expert] : 0.0f;
      each_column(
          row, [&](int own) { return __ldg(from + at(own)); },
          [&](int column, std::uint8_t byte) {
            to[column] = math::group_scale(byte, stored.dtype, tensor_scale);
          });
    } else {
      copy_nested(to, row, at);
    }
  }
  template <class At>
  __device__ __forceinline__ void copy_nested(float* to, int row, const At& at) const {
    const BlockStatistics& stored = args_.codes.scales.stored;
    const auto* from = static_cast<const std::uint8_t*>(stored.absmax);
    const auto* absmax = static_cast<const float*>(stored.nested_absmax);
    const float offset = *static_cast<const float*>(stored.nested_offset);
    struct Nested {
      std::uint8_t code;
      float absmax;
    };
    each_column(
        row,
        [&](int own) {
          const int index = at(own);
          return Nested{__ldg(from + index),
                        __ldg(absmax + args_.nested.quotient(static_cast<std::uint32_t>(index)))};
        },
        [&](int column, const Nested& own) {
          to[column] =
              math::restored_absmax(__ldg(stored.nested_codebook + own.code), own.absmax, offset);
        });
  }

  __device__ __forceinline__ void copy_shifts(float* to, int row, int segment) const {
    const WeightCodes& codes = args_.codes;
    const auto pitch = static_cast<int>(codes.zero_point_row);
    const auto copy_from = [&]<class Integer>(const Integer* from) {
      each_column(
          row, [&](int own) { return __ldg(from + own * pitch + segment); },
          [&](int column, Integer zero_point) {
            to[column] = __uint_as_float(decoder_.shifted(zero_point));
          });
    };
    if (codes.zero_point_dtype == DType::Int32)
      copy_from(static_cast<const std::int32_t*>(codes.zero_point));
    else if (codes.zero_point_dtype == DType::Int8)
      copy_from(static_cast<const signed char*>(codes.zero_point));
    else
      copy_from(static_cast<const std::uint8_t*>(codes.zero_point));
  }

  const Args& args_;
  const Rings<S>& rings_;
  const typename S::Decoder decoder_;
  int warp_, run_, column_;
};

}  // namespace planq::linear::sm90::groups::tiles
