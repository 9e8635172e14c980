// What the kernels of groups_few_rows.cuh are made for, and how their blocks add up the spans of an
// output.
#pragma once

#include "cuda/divider.cuh"
#include "cuda/launch.cuh"
#include "cuda/mbarrier.cuh"
#include "cuda/mma.cuh"
#include "cuda/wgmma.cuh"
#include "ops/codebook/codebook.h"
#include "ops/linear/simt/epilogue.cuh"
#include "ops/linear/weight_only/pair_table.cuh"
#include "ops/linear/weight_only/register_codes.cuh"

namespace planq::linear::sm90::groups::few_rows {

inline constexpr int kWarps = 16, kThreads = kWarps * cuda::kWarp;
inline constexpr int kQuad = 4;           // lanes that share a column, or a token
inline constexpr int kTokens = 8;         // of mma.sync
inline constexpr int kWarpColumns = 16;   // of mma.sync
inline constexpr int kBlockColumns = 32;  // that a block finishes of a tile
inline constexpr int kUnit = 32;          // terms of two steps
inline constexpr int kRowBytes = 128;     // codes of a column in a stage
inline constexpr int kRowChunks = kRowBytes / cuda::kVectorBytes;
inline constexpr int kCopies = kWarpColumns * kRowChunks / cuda::kWarp;  // of a lane, for a stage
inline constexpr int kStages = 2;
inline constexpr int kStageBytes = kWarpColumns * kRowBytes;
inline constexpr int kRingBytes = kWarps * kStages * kStageBytes;
inline constexpr int kScaleValues = 256;
inline constexpr int kSpans = math::kSpans;

// A kernel. T: the type of the numbers. kCodes: how codes become numbers. kShifted: they have zero
// points. kWords: scales are float32, and zero points int32; others are widened on the way. kRun:
// terms that share a statistic. kEights: groups of eight tokens.
template <class T_, RegisterCodes kCodes_, bool kShifted_, bool kWords_, int kRun_, int kEights_>
struct Shape {
  using T = T_;
  static constexpr RegisterCodes kCodes = kCodes_;
  static constexpr bool kShifted = kShifted_, kWords = kWords_;
  static constexpr int kRun = kRun_, kEights = kEights_;
  static constexpr bool kHasTable = kCodes == RegisterCodes::Table;
  static_assert(!(kHasTable && kShifted));
  static constexpr int kBits = has_bytes(kCodes) ? 8 : 4;
  static constexpr int kTerms = kRowBytes * 8 / kBits;  // of a stage
  static constexpr int kChunkTerms = kTerms / kRowChunks;
  static constexpr int kUnits = kTerms / kUnit;
  static constexpr int kRuns = kTerms / kRun;
  static constexpr int kStatistics = kWarpColumns * kRuns;  // of a stage
  // Floats from the scales of a column to the next. Those of short runs are loaded four at a time,
  // and the columns of a warp's lanes begin in different banks.
  static constexpr int kPitch = kRun < kUnit ? kRuns + 4 : kRuns;
  static constexpr int kScaleBytes = kWarpColumns * kPitch * 4;
  static constexpr int kStatisticBytes = kScaleBytes * (kShifted ? 2 : 1);
};

// Where a block has what in shared memory, in bytes from its beginning.
struct Room {
  std::int32_t table, scale_values, ring, statistics, parts, input, bytes;
  std::int32_t part_pitch;   // floats from a column of partial sums to the next
  std::int32_t part_bytes;   // of the partial sums of a tile
  std::int32_t buffers;      // for partial sums
  std::int32_t token_pitch;  // bytes from a token of the input to the next
};

struct Args : CodesArgs {
  using CodesArgs::CodesArgs;

  Gemm gemm;
  cuda::Divider segments;  // divides by the 128 terms of a run, where segments are longer
  cuda::Divider nested;
  std::int32_t pitch, zero_point_pitch;  // statistics from a column to the next
  std::int32_t span;                     // terms
  std::int32_t cluster, tiles;
  std::int32_t table_pitch;  // bytes of an entry; an argument, so that it is multiplied with
  Room room;
};

// The terms of span `span` and where they end.
struct Span {
  int first, end;

  __device__ __forceinline__ Span(const Args& args, int span)
      : first(min(span * args.span, static_cast<int>(args.codes.terms))),
        end(min(first + args.span, static_cast<int>(args.codes.terms))) {}
  template <class S>
  __device__ __forceinline__ int stages() const {
    return (end - first + S::kTerms - 1) / S::kTerms;
  }
};

// The segment of a term, counted from the column's first.
template <class S>
__device__ __forceinline__ int segment_of(const Args& args, int term) {
  if constexpr (S::kRun < math::kMostRunTerms) return term / S::kRun;
  return static_cast<int>(
      args.segments.quotient(static_cast<std::uint32_t>(term / math::kMostRunTerms)));
}

// Which part of a tile a warp has.
struct Part {
  int rank;       // of the block in its cluster
  int local;      // of the span among those of the block
  int span;       // of the eight
  int sixteenth;  // of the tile's groups of 16 columns

  __device__ __forceinline__ explicit Part(int cluster)
      : rank(cluster > 1 ? cuda::cluster_rank() : 0) {
    const int warp = cuda::uniform(static_cast<int>(threadIdx.x) / cuda::kWarp);
    const int spans = kSpans / cluster;
    local = warp % spans;
    sixteenth = warp / spans;
    span = rank * spans + local;
  }
};

// The sums of spans on their way to the block that adds them up, in one or two buffers. A buffer is
// full when all spans of a tile have come, and free when its block has read them.
class Parts {
 public:
  static constexpr int kMostBuffers = 2;
  static constexpr int kBarrierBytes = 2 * kMostBuffers * static_cast<int>(sizeof(cuda::Barrier));

  __device__ __forceinline__ Parts(const Args& args, cuda::Barrier* barriers,
                                   cuda::SharedAddress parts, int tiles)
      : args_(args),
        full_(barriers),
        free_(barriers + kMostBuffers),
        parts_(parts),
        tiles_(tiles) {}

  // Called by one thread.
  __device__ __forceinline__ void open() const {
    const bool alone = args_.cluster == 1;
    for (int i = 0; i < kMostBuffers; ++i) {
      full_[i].init(alone ? kWarps : 1);
      free_[i].init(kWarps * args_.cluster);
    }
    cuda::publish_barriers();
    for (int i = 0; !alone && i < min(args_.room.buffers, tiles_); ++i)
      full_[i].arrive_and_expect(bytes());
  }

  // Sends a warp's sums of the cluster's tile number `index`.
  template <class S>
  __device__ __forceinline__ void send(const float (&sums)[S::kEights][4], const Part& part,
                                       int index) const {
    const int buffer = index % args_.room.buffers, use = index / args_.room.buffers;
    if (use > 0) free_[buffer].wait((use - 1) & 1);
    const int lane = static_cast<int>(threadIdx.x) % cuda::kWarp;
    const int column = part.span * kBlockColumns + part.sixteenth % 2 * kWarpColumns + lane / kQuad;
    const bool alone = args_.cluster == 1;
    const int owner = part.sixteenth / 2;
    const cuda::SharedAddress to = parts_ + buffer * args_.room.part_bytes;
    const cuda::SharedAddress there = alone ? to : cuda::address_in_block(to, owner);
    const cuda::SharedAddress barrier =
        alone ? 0 : cuda::address_in_block(full_[buffer].address(), owner);
#pragma unroll
    for (int i = 0; i < S::kEights; ++i)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int token = i * kTokens + lane % kQuad * 2;
        if (token >= args_.gemm.m) continue;
        const float2 pair = make_float2(sums[i][2 * half], sums[i][2 * half + 1]);
        const int at = ((column + 8 * half) * args_.room.part_pitch + token) * 4;
        if (alone)
          cuda::store_shared(to + at, make_uint2(__float_as_uint(pair.x), __float_as_uint(pair.y)));
        else
          cuda::send_pair(there + at, pair, barrier);
      }
    if (!alone) return;
    __syncwarp();
    if (lane == 0) full_[buffer].arrive();
  }

  // Adds up the spans of the cluster's tile number `index`, and stores the block's outputs, whose
  // first column is `column`.
  __device__ __forceinline__ void finish(int index, int column) const {
    const int buffer = index % args_.room.buffers, phase = index / args_.room.buffers & 1;
    const Gemm& gemm = args_.gemm;
    full_[buffer].wait(phase);
    const cuda::SharedAddress from = parts_ + buffer * args_.room.part_bytes;
    const int count = kBlockColumns * static_cast<int>(gemm.m);
    // Warps take turns, since there may be few outputs.
    for (int i = (static_cast<int>(threadIdx.x) + index * cuda::kWarp) % kThreads; i < count;
         i += kThreads) {
      const int own = i % kBlockColumns, token = i / kBlockColumns;
      if (column + own >= gemm.n) continue;
      float sum = 0;
#pragma unroll
      for (int span = 0; span < kSpans; ++span)
        sum = sum + __uint_as_float(cuda::load_shared_word(
                        from + ((span * kBlockColumns + own) * args_.room.part_pitch + token) * 4));
      const FloatColumn of_column(gemm, column + own);
      store_output(gemm, token, column + own,
                   finished(gemm, token, column + own, sum, 1.0f, of_column));
    }
    if (index + args_.room.buffers < tiles_) release(buffer);
  }

 private:
  __device__ __forceinline__ int bytes() const {
    return kSpans * kBlockColumns * ((static_cast<int>(args_.gemm.m) + 1) & ~1) * 4;
  }
  // Only of buffers that are used again, so that nothing arrives at a block that has ended.
  __device__ __forceinline__ void release(int buffer) const {
    const int lane = static_cast<int>(threadIdx.x) % cuda::kWarp;
    if (args_.cluster > 1 && threadIdx.x == 0) full_[buffer].arrive_and_expect(bytes());
    __syncwarp();
    if (args_.cluster == 1) {
      if (lane == 0) free_[buffer].arrive();
    } else if (lane < args_.cluster) {
      cuda::arrive_in_block(free_[buffer], lane);
    }
  }

  const Args& args_;
  cuda::Barrier *full_, *free_;
  cuda::SharedAddress parts_;
  int tiles_;
};

}  // namespace planq::linear::sm90::groups::few_rows
