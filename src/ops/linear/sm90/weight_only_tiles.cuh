// Accumulation::TensorSm90 for 4-bit weights and up to some hundred rows of input (tokens), on the
// tensor cores of sm_90a. Such a gemm takes as long as it takes to dequantize the weight, once for
// all tokens of a tile.
//
// A warpgroup dequantizes codes in registers, for 64 columns of the output. These are wgmma's first
// operand, the tokens in shared memory are its second. The groups of a block may have different
// columns: each is an owner. Or several groups share the same columns: each takes every kSharing-th
// slice of 128 terms and, when it is multiplied, adds it to a total that goes from group to group,
// so that slices are added in their order.
//
// A statistic is what dequantizes a segment of codes: a scale, and perhaps a zero point. A run is
// 64 terms of a column, which always have one statistic.
#pragma once

#include "cuda/divider.cuh"
#include "cuda/launch.cuh"
#include "cuda/mbarrier.cuh"
#include "cuda/mma.cuh"
#include "cuda/tensor_map.cuh"
#include "cuda/wgmma.cuh"
#include "ops/linear/sm90/heuristics.h"
#include "ops/linear/sm90/slices.cuh"
#include "ops/linear/weight_only/lane_table.cuh"

namespace planq::linear::sm90::weight_only {

inline constexpr int kSlice = math::kTensorCoreSlice, kStep = 16, kSteps = kSlice / kStep;
inline constexpr int kRun = 64, kRuns = kSlice / kRun;  // terms that share a statistic
inline constexpr int kGroupThreads = 128, kGroupWarps = kGroupThreads / cuda::kWarp;
inline constexpr int kGroupColumns = cuda::kWgmmaRows, kWarpColumns = kGroupColumns / kGroupWarps;
inline constexpr int kStatisticWarps = 3;
inline constexpr int kGroupBytes = kGroupColumns * cuda::kNarrowBoxBytes;  // codes of a slice

// A kernel: see Width in heuristics.h. kShifted: codes have zero points.
template <int kTokens_, int kOwners_, int kSharing_, int kAtOnce_, bool kShifted_>
struct Shape {
  static constexpr bool kShifted = kShifted_;
  static constexpr int kTokens = kTokens_, kOwners = kOwners_, kSharing = kSharing_;
  // Steps whose numbers are in registers at a time. There are two such sets.
  static constexpr int kAtOnce = kAtOnce_;
  static constexpr int kSums = kTokens / 2;  // of a thread
  static constexpr int kGroups = kOwners * kSharing;
  static constexpr int kColumns = kOwners * kGroupColumns;
  static constexpr int kThreads = (kGroups + 1) * kGroupThreads;
  // Of a thread that copies, and of one that multiplies.
  static constexpr int kCopyRegisters = 32;
  static constexpr int kGroupRegisters =
      ((65536 / kThreads / 8 * 8) * (kGroups + 1) - kCopyRegisters) / kGroups / 8 * 8;

  static constexpr int kCodeBytes = kOwners * kGroupBytes;
  static constexpr int kInputBytes = kTokens * kSlice * 2;
  static constexpr int kScaleBytes = kColumns * static_cast<int>(sizeof(float2));
  static constexpr int kZeroPointBytes = kShifted ? kColumns * static_cast<int>(sizeof(int2)) : 0;
  static constexpr int kHandedBytes = kSharing > 1 ? kOwners * kGroupThreads * kSums * 4 : 0;
  // Staging of the epilogue, for each warp: its columns of some tokens at a time.
  static constexpr int kOutTokens = kTokens < 16 ? kTokens : 16;
  static constexpr int kOutPitch = kWarpColumns + 4;
  static constexpr int kOutBytes = kOwners * kGroupWarps * kOutTokens * kOutPitch * 4;
  // Shared memory. Stages of codes and zero points lie below the table that dequantizes, stages of
  // the input and of scales above it. The scratch is the total that goes from group to group, and
  // the staging; it lies below the table if there is room.
  static constexpr int kBelow = LanePairTable::kBytes - 1024;
  static constexpr int kAbove = 228 * 1024 - 2 * LanePairTable::kBytes;
  static constexpr int kMostStages = 16, kBarrierBytes = 2 * kMostStages * 8;
  static constexpr int stages(int scratch_above) {
    const int above = kAbove - kBarrierBytes - scratch_above;
    return std::min({kBelow / (kCodeBytes + kZeroPointBytes), above / (kInputBytes + kScaleBytes),
                     kMostStages});
  }
  static constexpr int kScratchBytes = kHandedBytes + kOutBytes;
  static constexpr bool kScratchBelow =
      kBelow - stages(0) * (kCodeBytes + kZeroPointBytes) >= kScratchBytes;
  static constexpr int kStages = stages(kScratchBelow ? 0 : kScratchBytes);
  static constexpr int kBarriersAt = kStages * (kInputBytes + kScaleBytes);  // above the table
  static constexpr int kSharedBytes = kBelow + LanePairTable::kBytes + kBarriersAt + kBarrierBytes +
                                      (kScratchBelow ? 0 : kScratchBytes);
  // A group releases a stage only when it has begun its next one.
  static_assert(kStages > kSharing);
};

struct Args : CodesArgs {
  using CodesArgs::CodesArgs;

  cuda::TensorMap codes_map, input_map;
  int input_step;  // what a step along the batch adds to the third coordinate of the input's map
  sm90::Outputs outputs;
  cuda::Divider segments;  // divides by the runs of a segment
  cuda::Divider nested;
  std::int32_t column_segments;  // statistics from a column to the next
  bool by_pairs;  // the scales of a slice's two runs are neighbours, aligned to 8 bytes
  std::int32_t slices, down, across, tiles;
  int waits;  // for the kernel before, which may still be writing what is read here
};

// --- The ring -----------------------------------------------------------------------------------

// The ring. A stage is a slice of a tile. TMA brings codes and inputs, warps bring the statistics.
template <class S>
struct Ring {
  std::uint8_t* codes;
  std::uint8_t* inputs;
  float2* scales;  // of the two runs of each column
  int2* zero_points;
  cuda::Barrier* full;
  cuda::Barrier* empty;

  // Called by one thread.
  __device__ __forceinline__ void open() const {
    for (int i = 0; i < S::kStages; ++i) {
      full[i].init(1 + kStatisticWarps);
      empty[i].init(S::kOwners * kGroupWarps);
    }
    cuda::publish_barriers();
  }
};

// A tile of the output: its first row and column, and its gemm of the batch.
struct Tile {
  int m, n, batch;

  template <class S>
  static __device__ __forceinline__ Tile of(const Args& args, int index) {
    const int down = index % args.down, rest = index / args.down;
    return {down * S::kTokens, rest % args.across * S::kColumns, rest / args.across};
  }
};

PLANQ_HD const float* scales_of(const Args& args) {
  const WeightCodes& codes = args.codes;
  return codes.has_blocks() ? static_cast<const float*>(codes.statistics.absmax) : codes.scale;
}

// Prefetches the statistics of a tile's columns to the L2 cache.
template <class S>
__device__ __forceinline__ void prefetch_statistics(const Args& args, int index) {
  if (index >= args.tiles) return;
  const WeightCodes& codes = args.codes;
  const bool nested = codes.statistics.nested_block_size != 0;
  const auto all = reinterpret_cast<std::uintptr_t>(scales_of(args));
  const std::int64_t each = std::int64_t{args.column_segments} * (nested ? 1 : 4);
  const std::int64_t n = Tile::of<S>(args, index).n, last = min(n + S::kColumns, codes.rows);
  const auto begin = (all + n * each + 15) & ~std::uintptr_t{15};
  const auto end = (all + last * each) & ~std::uintptr_t{15};
  if (end > begin) cuda::prefetch_bytes(begin, static_cast<std::uint32_t>(end - begin));
}

// What the thread does that has TMA fill the stages.
template <class S>
__device__ __forceinline__ void copy_slices(const Args& args, const Ring<S>& ring) {
  cuda::StageCursor<S::kStages> cursor;
  prefetch_statistics<S>(args, blockIdx.x);
#pragma unroll 1
  for (int index = blockIdx.x; index < args.tiles; index += gridDim.x) {
    const Tile tile = Tile::of<S>(args, index);
    prefetch_statistics<S>(args, index + gridDim.x);
#pragma unroll 1
    for (int slice = 0; slice < args.slices; ++slice) {
      ring.empty[cursor.stage].wait(cursor.parity ^ 1);
      cuda::Barrier& full = ring.full[cursor.stage];
      full.arrive_and_expect(S::kCodeBytes + S::kInputBytes);
      cuda::copy_box(ring.codes + cursor.stage * S::kCodeBytes, args.codes_map,
                     slice * cuda::kNarrowBoxBytes, tile.n, 0, full);
      std::uint8_t* inputs = ring.inputs + cursor.stage * S::kInputBytes;
#pragma unroll
      for (int k_block = 0; k_block < 2; ++k_block)
        cuda::copy_box(inputs + k_block * S::kTokens * cuda::kBoxBytes, args.input_map,
                       (slice * 2 + k_block) * cuda::kBoxBytes, tile.m,
                       tile.batch * args.input_step, full);
      cursor.advance();
    }
  }
}

// What the threads of kStatisticWarps warps do: they copy statistics to the stages. Thread t has
// every kStep-th column of the tile, from column t on.
template <class S>
class StatisticCopies {
 public:
  static constexpr int kStep = kStatisticWarps * cuda::kWarp;
  static constexpr int kColumns = (S::kColumns + kStep - 1) / kStep;  // of a thread
  // Slices whose copies are under way. A slice is complete kAhead slices after it was begun.
  // Meanwhile each of the sharing groups holds a stage until it begins its next, and one more stage
  // has to be free.
  static constexpr int kAhead = std::min(6, S::kStages - S::kSharing - 1);
  static_assert(kAhead >= 1);

  __device__ __forceinline__ StatisticCopies(const Args& args, const Ring<S>& ring, int thread)
      : args_(args), ring_(ring), own_(thread) {}

  __device__ __forceinline__ void run() {
    const int first = static_cast<int>(blockIdx.x), step = static_cast<int>(gridDim.x);
    if (first >= args_.tiles) return;
    const int slices = ((args_.tiles - 1 - first) / step + 1) * args_.slices;
    if (args_.codes.statistics.nested_block_size != 0)
      copy_all<true>(slices);
    else
      copy_all<false>(slices);
  }

 private:
  // A slice of a tile, and the first statistic of each of the thread's columns.
  struct Place {
    int tile, slice;
    int first[kColumns], zero_points[kColumns];
  };

  template <bool kNested>
  __device__ __forceinline__ void copy_all(int slices) {
    Place begun;
    enter(begun, blockIdx.x);
    Place complete = begun;
    cuda::StageCursor<S::kStages> begun_stage, complete_stage;
#pragma unroll 1
    for (int i = 0; i < slices + kAhead; ++i) {
      if (i < slices) {
        ring_.empty[begun_stage.stage].wait(begun_stage.parity ^ 1);
        copy<kNested>(begun, begun_stage.stage * S::kColumns + own_);
        begun_stage.advance();
        advance(begun);
      }
      cuda::end_copy_group();
      if (i < kAhead) continue;
      cuda::wait_for_copy_groups<kAhead>();
      if constexpr (kNested) {
        restore(complete, complete_stage.stage * S::kColumns + own_);
        advance(complete);
      }
      __syncwarp();
      if (threadIdx.x % cuda::kWarp == 0) ring_.full[complete_stage.stage].arrive();
      complete_stage.advance();
    }
  }

  __device__ __forceinline__ void enter(Place& place, int tile) const {
    place.tile = tile;
    place.slice = 0;
    const int n = tile / args_.down % args_.across * S::kColumns + own_;
    const int last = static_cast<int>(args_.codes.rows) - 1;
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
      const int column = min(n + c * kStep, last);
      place.first[c] = column * args_.column_segments;
      if constexpr (S::kShifted)
        place.zero_points[c] = column * static_cast<int>(args_.codes.zero_point_row);
    }
  }
  __device__ __forceinline__ void advance(Place& place) const {
    if (++place.slice < args_.slices) return;
    const int tile = place.tile + static_cast<int>(gridDim.x);
    if (tile < args_.tiles) enter(place, tile);
  }
  __device__ __forceinline__ bool has(int c) const { return own_ + c * kStep < S::kColumns; }
  // The segment that holds a run of the slice, counted from the column's first.
  __device__ __forceinline__ int segment(const Place& place, int run) const {
    return static_cast<int>(
        args_.segments.quotient(static_cast<std::uint32_t>(place.slice * kRuns + run)));
  }

  template <bool kNested>
  __device__ __forceinline__ void copy(const Place& place, int to) const {
    const cuda::SharedAddress scales = cuda::shared_address(ring_.scales + to);
    const int first = segment(place, 0), second = segment(place, 1);
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
      if (!has(c)) break;
      const int at = c * kStep * static_cast<int>(sizeof(float2));
      if constexpr (kNested) {
        copy_nested(place.first[c] + first, scales + at);
        continue;
      }
      const float* from = scales_of(args_) + place.first[c];
      if (args_.by_pairs) {
        cuda::copy_async<8>(scales + at, from + first);
      } else {
        cuda::copy_async<4>(scales + at, from + first);
        cuda::copy_async<4>(scales + at + 4, from + second);
      }
      if constexpr (S::kShifted) {
        const std::int32_t* points = args_.codes.zero_point + place.zero_points[c];
        const cuda::SharedAddress zero_points = cuda::shared_address(ring_.zero_points + to) + at;
        cuda::copy_async<4>(zero_points, points + first);
        cuda::copy_async<4>(zero_points + 4, points + second);
      }
    }
  }

  // Copies nested statistics. The codes of a slice's two statistics are in one word, and share one
  // absmax. The word and the absmax go where the two restored statistics will be.
  __device__ __forceinline__ void copy_nested(int at, cuda::SharedAddress to) const {
    const BlockStatistics& s = args_.codes.statistics;
    const auto word = (reinterpret_cast<std::uintptr_t>(s.absmax) + at) & ~std::uintptr_t{3};
    const auto block = args_.nested.quotient(static_cast<std::uint32_t>(at));
    cuda::copy_async<4>(to, reinterpret_cast<const void*>(word));
    cuda::copy_async<4>(to + 4, static_cast<const float*>(s.nested_absmax) + block);
  }
  __device__ __forceinline__ void restore(const Place& place, int at) const {
    const BlockStatistics& s = args_.codes.statistics;
    const int first = segment(place, 0), apart = segment(place, 1) - first;
    const float offset = *static_cast<const float*>(s.nested_offset);
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
      if (!has(c)) break;
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
  int own_;
};

// --- A group of warps ---------------------------------------------------------------------------

template <class T, class S>
class Group {
 public:
  using Sums = sm90::Slice<S::kTokens>;

  // `scratch`: the total that goes from group to group, then the staging.
  __device__ __forceinline__ Group(const Args& args, const Ring<S>& ring, cuda::SharedAddress table,
                                   std::uint8_t* scratch, int group)
      : args_(args),
        ring_(ring),
        table_(table),
        owner_(group / S::kSharing),
        rank_(group % S::kSharing),
        tile_(blockIdx.x),
        slice_(rank_) {
    const int thread = threadIdx.x % kGroupThreads, lane = threadIdx.x % cuda::kWarp;
    const int warp = owner_ * kGroupWarps + thread / cuda::kWarp;
    handed_ = reinterpret_cast<float4*>(scratch) + owner_ * kGroupThreads + thread;
    out_ =
        reinterpret_cast<float*>(scratch + S::kHandedBytes) + warp * S::kOutTokens * S::kOutPitch;
    column_ = warp * kWarpColumns + lane / 4;
    codes_ =
        cuda::shared_address(ring.codes) + column_ * cuda::kNarrowBoxBytes + column_ / 2 % 4 * 16;
    inputs_ = cuda::descriptor_of(cuda::shared_address(ring.inputs));
    cursor_.stage = rank_;
    normalize();
  }

  __device__ __forceinline__ void run() {
    Sums sums, total;
#pragma unroll
    for (int i = 0; i < S::kSums; ++i) total[i] = sums[i] = 0;
    Done done{-1, 0, 0};
#pragma unroll 1
    while (tile_ < args_.tiles) {
      ring_.full[cursor_.stage].wait(cursor_.parity);
      multiply(sums, total, done);
      done = {cursor_.stage, tile_, slice_};
      advance();
    }
    cuda::wgmma_wait<0>();
    cuda::pin(sums);
    if (done.stage >= 0) join(total, sums, done);
  }

 private:
  // A slice that has been issued, but not added to the total. Stage -1: there is none.
  struct Done {
    int stage, tile, slice;
  };
  using Numbers = std::uint32_t[S::kAtOnce][4];

  __device__ __forceinline__ void normalize() {
    while (slice_ >= args_.slices && tile_ < args_.tiles) {
      slice_ -= args_.slices;
      tile_ += gridDim.x;
    }
  }
  __device__ __forceinline__ void advance() {
    cursor_.stage += S::kSharing;
    if (cursor_.stage >= S::kStages) {
      cursor_.stage -= S::kStages;
      cursor_.parity ^= 1;
    }
    slice_ += S::kSharing;
    normalize();
  }

  // Dequantizes the slice in the cursor's stage and issues its wgmma. Meanwhile adds the slice
  // before it to the total.
  __device__ __forceinline__ void multiply(Sums& sums, Sums& total, const Done& done) {
    const cuda::SharedAddress codes = codes_ + cursor_.stage * S::kCodeBytes;
    const std::uint64_t inputs = cuda::advanced(inputs_, cursor_.stage * S::kInputBytes);
    CodeScale own[2][kRuns];
    load_statistics(own);
    Numbers numbers[2];
#pragma unroll
    for (int batch = 0; batch < kSteps / S::kAtOnce; ++batch) {
      Numbers& held = numbers[batch % 2];
      cuda::wgmma_wait<1>();
      dequantize(codes, batch * S::kAtOnce, own, held);
      if (batch == 0) {
        cuda::wgmma_wait<0>();
        cuda::pin(sums);
        if (done.stage >= 0) {
          release(done.stage);
          join(total, sums, done);
        }
      }
      pin(held);
      cuda::wgmma_fence();
#pragma unroll
      for (int i = 0; i < S::kAtOnce; ++i) {
        const int step = batch * S::kAtOnce + i;
        const int at = step / 4 * S::kTokens * cuda::kBoxBytes + step % 4 * cuda::kWgmmaBytes;
        cuda::wgmma_add_held<T>(sums, held[i], cuda::advanced(inputs, at), step > 0);
      }
      cuda::wgmma_commit();
    }
  }
  static __device__ __forceinline__ void pin(Numbers& numbers) {
#pragma unroll
    for (auto& step : numbers)
#pragma unroll
      for (std::uint32_t& pair : step) cuda::keep(pair);
  }
  __device__ __forceinline__ void release(int stage) {
    if (threadIdx.x % cuda::kWarp == 0) ring_.empty[stage].arrive();
  }

  // Loads the statistics of the thread's two columns.
  __device__ __forceinline__ void load_statistics(CodeScale (&own)[2][kRuns]) const {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int at = cursor_.stage * S::kColumns + column_ + 8 * i;
      const float2 scales = cuda::load_shared_pair(cuda::shared_address(ring_.scales + at));
      own[i][0].scale = scales.x;
      own[i][1].scale = scales.y;
      if constexpr (S::kShifted) {
        const int2 zero_points = ring_.zero_points[at];
        own[i][0].shift_by(zero_points.x);
        own[i][1].shift_by(zero_points.y);
      }
    }
  }

  // Dequantizes two codes to a register of wgmma's first operand.
  __device__ __forceinline__ std::uint32_t number(std::uint32_t codes, const CodeScale& own) const {
    const float2 pair = own.template numbers<S::kShifted>(table_.at(codes));
    return cuda::pair_of(pair.x, pair.y, T{});
  }
  // Dequantizes kAtOnce steps from step `first` on.
  __device__ __forceinline__ void dequantize(cuda::SharedAddress codes, int first,
                                             const CodeScale (&own)[2][kRuns],
                                             Numbers& numbers) const {
#pragma unroll
    for (int i = 0; i < S::kAtOnce; ++i) {
      const int step = first + i, run = step / (kSteps / kRuns);
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const uint2 words = cuda::load_shared_words((codes ^ step / 2 * 16) + step % 2 * 8 +
                                                    half * 8 * cuda::kNarrowBoxBytes);
        numbers[i][half] = number(words.x, own[half][run]);
        numbers[i][half + 2] = number(words.y, own[half][run]);
      }
    }
  }

  // Adds a slice that has been multiplied to the total of those before it.
  __device__ __forceinline__ void join(Sums& total, const Sums& sums, const Done& done) {
    const bool last = done.slice + 1 == args_.slices;
    if constexpr (S::kSharing == 1) {
      if (done.slice == 0) {
#pragma unroll
        for (int i = 0; i < S::kSums; ++i) total[i] = 0;
      }
#pragma unroll
      for (int i = 0; i < S::kSums; ++i) total[i] = total[i] + sums[i];
    } else {
      const bool begins = done.tile == static_cast<int>(blockIdx.x) && done.slice == 0;
      if (!begins) cuda::named_barrier_wait(barrier_of(0), 2 * kGroupThreads);
      constexpr int kStride = S::kOwners * kGroupThreads;
#pragma unroll
      for (int v = 0; v < S::kSums / 4; ++v) {
        float4 t = done.slice == 0 ? make_float4(0, 0, 0, 0) : handed_[v * kStride];
        t.x += sums[4 * v], t.y += sums[4 * v + 1], t.z += sums[4 * v + 2], t.w += sums[4 * v + 3];
        if (last)
          total[4 * v] = t.x, total[4 * v + 1] = t.y, total[4 * v + 2] = t.z,
                    total[4 * v + 3] = t.w;
        else
          handed_[v * kStride] = t;
      }
      const bool ends = last && done.tile + static_cast<int>(gridDim.x) >= args_.tiles;
      if (!ends) cuda::named_barrier_arrive(barrier_of(1), 2 * kGroupThreads);
    }
    if (last) finish(total, done.tile);
  }
  // The named barrier of the group that is `later` slices behind this one in the order of slices. A
  // group waits at its own until the total reaches it.
  __device__ __forceinline__ int barrier_of(int later) const {
    return 1 + owner_ * S::kSharing + (rank_ + later) % S::kSharing;
  }

  // Stores outputs: a warp's sums go through its staging, some tokens at a time.
  __device__ __forceinline__ void finish(const Sums& total, int index) {
    const Tile tile = Tile::of<S>(args_, index);
    const int lane = threadIdx.x % cuda::kWarp, warp = threadIdx.x / cuda::kWarp % kGroupWarps;
    const int n = tile.n + owner_ * kGroupColumns + warp * kWarpColumns + lane % 4 * 4;
    const sm90::ScaledOutputs<float, sm90::SumsAre::Unscaled> out(args_.outputs, tile.batch);
    const auto columns = out.columns(n);
#pragma unroll
    for (int first = 0; first < S::kTokens; first += S::kOutTokens) {
      const int left = static_cast<int>(args_.outputs.rows) - tile.m - first;
      __syncwarp();
#pragma unroll
      for (int i = 0; i < S::kOutTokens / 2; ++i)
        out_[(i / 4 * 8 + lane % 4 * 2 + i % 2) * S::kOutPitch + lane / 4 + i % 4 / 2 * 8] =
            total[first / 2 + i];
      __syncwarp();
      const int* own = reinterpret_cast<const int*>(out_) + lane / 4 * S::kOutPitch + lane % 4 * 4;
      const int count = max(min(left, S::kOutTokens) - lane / 4 + 7, 0) / 8;
      out.finish({own, 8 * S::kOutPitch, count, 0, tile.m + first + lane / 4, 8, n}, {}, columns);
    }
  }

  const Args& args_;
  const Ring<S>& ring_;
  const LanePairTable table_;
  int owner_, rank_, tile_, slice_;
  float4* handed_;
  float* out_;
  cuda::StageCursor<S::kStages> cursor_;
  int column_;
  cuda::SharedAddress codes_;
  std::uint64_t inputs_;
};

// --- The kernel ---------------------------------------------------------------------------------

// The grid may have any number of blocks. Block i computes tiles i, i + blocks, and so on.
template <class T, class S>
__global__ void __launch_bounds__(S::kThreads, 1)
    multiply_dequantized(const __grid_constant__ Args args) {
  extern __shared__ __align__(1024) std::uint8_t shared[];
  const cuda::SharedAddress begin = cuda::shared_address(shared), table = LanePairTable::kBytes;
  if (begin > 1024) __trap();  // the stages would not fit below the table
  std::uint8_t* const at_table = shared + (table - begin);
  std::uint8_t* const above = at_table + LanePairTable::kBytes;
  auto* const barriers = reinterpret_cast<cuda::Barrier*>(above + S::kBarriersAt);
  const Ring<S> ring{at_table - S::kBelow,
                     above,
                     reinterpret_cast<float2*>(above + S::kStages * S::kInputBytes),
                     reinterpret_cast<int2*>(at_table - S::kBelow + S::kStages * S::kCodeBytes),
                     barriers,
                     barriers + S::kStages};
  constexpr int kCopies = S::kGroups * kGroupThreads;
  if (threadIdx.x == kCopies) {
    ring.open();
    cuda::prefetch_map(args.codes_map);
    cuda::prefetch_map(args.input_map);
  }
  if (args.waits) cuda::wait_for_previous();
  LanePairTable::fill(reinterpret_cast<float2*>(at_table), args, S::kThreads);
  __syncthreads();
  const int group = cuda::uniform(static_cast<int>(threadIdx.x) / kGroupThreads);
  if (group < S::kGroups) {
    cuda::raise_registers<S::kGroupRegisters>();
    std::uint8_t* const scratch =
        S::kScratchBelow ? ring.codes + S::kStages * (S::kCodeBytes + S::kZeroPointBytes)
                         : above + S::kBarriersAt + S::kBarrierBytes;
    Group<T, S>(args, ring, table, scratch, group).run();
  } else {
    cuda::lower_registers<S::kCopyRegisters>();
    if (threadIdx.x == kCopies)
      copy_slices<S>(args, ring);
    else if (threadIdx.x >= kCopies + cuda::kWarp)
      StatisticCopies<S>(args, ring, threadIdx.x - kCopies - cuda::kWarp).run();
  }
}

}  // namespace planq::linear::sm90::weight_only
