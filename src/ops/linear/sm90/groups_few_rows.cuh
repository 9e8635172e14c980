// Accumulation::GroupsSm90 for few rows of input (tokens), on mma.sync. Such a gemm takes as long
// as it takes to read the weight, so codes become numbers in few instructions, and meet no scale:
// sums do.
//
// A cluster goes through tiles of 32 output columns for each of its blocks. A warp has 16 columns
// of a tile and one of the eight spans of k. It streams its part of the weight through a ring of
// its own, so no warp waits for another. Its sums go to the block that finishes their columns,
// which adds the spans up in their order. Every block keeps the input of its spans in shared
// memory.
//
// A statistic is what the sum of a run meets: a scale, and perhaps a zero point.
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
inline constexpr int kSpans = math::kSpans;

// A kernel. T: the type of the numbers. kCodes: how codes become numbers. kSecond: a statistic is
// two numbers, a scale and a zero point, or a nested code and the absmax of its block. kRun: terms
// that share a statistic. kEights: groups of eight tokens.
template <class T_, RegisterCodes kCodes_, bool kSecond_, int kRun_, int kEights_>
struct Shape {
  using T = T_;
  static constexpr RegisterCodes kCodes = kCodes_;
  static constexpr bool kSecond = kSecond_;
  static constexpr int kRun = kRun_, kEights = kEights_;
  static constexpr bool kHasTable = kCodes == RegisterCodes::Table;
  static constexpr bool kNested = kHasTable && kSecond, kShifted = !kHasTable && kSecond;
  static constexpr int kBits = kCodes == RegisterCodes::Bytes ? 8 : 4;
  static constexpr int kTerms = kRowBytes * 8 / kBits;  // of a stage
  static constexpr int kChunkTerms = kTerms / kRowChunks;
  static constexpr int kUnits = kTerms / kUnit;
  static constexpr int kRuns = kTerms / kRun;
  static constexpr int kStatistics = kWarpColumns * kRuns;  // of a stage
  static constexpr int kStatisticBytes = kStatistics * (kShifted ? 8 : 4);
};

// Where a block has what in shared memory, in bytes from its beginning.
struct Room {
  std::int32_t table, nested, ring, statistics, parts, input, bytes;
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

// --- The ring of a warp --------------------------------------------------------------------------

// Copies a warp's codes and statistics, stage by stage and tile by tile. In a stage, chunk c of
// column r is at place c ^ (r % 8) of the column, so that ldmatrix meets every bank once. Columns
// beyond the weight are not copied: what is multiplied instead is not stored.
template <class S>
class Ring {
 public:
  __device__ __forceinline__ Ring(const Args& args, const Part& part, cuda::SharedAddress shared,
                                  int first_tile, int step)
      : args_(args),
        span_(args, part.span),
        stages_(span_.template stages<S>()),
        tiles_((args.tiles - first_tile + step - 1) / step),
        step_(step * args.cluster * kBlockColumns) {
    const int warp = static_cast<int>(threadIdx.x) / cuda::kWarp;
    const int lane = static_cast<int>(threadIdx.x) % cuda::kWarp;
    codes_ = shared + args.room.ring + warp * kStages * kStageBytes;
    statistics_ = shared + args.room.statistics + warp * kStages * S::kStatisticBytes;
    if constexpr (S::kNested) {
      nested_ = shared + args.room.nested;
      offset_ = __ldg(static_cast<const float*>(args.codes.statistics.nested_offset));
    }
    const int row = lane / kRowChunks, chunk = lane % kRowChunks;
    to_ = row * kRowBytes + ((chunk ^ row) << 4);
    own_term_ = span_.first + chunk * S::kChunkTerms;
    row_bytes_ = args.codes.row_stride * S::kBits / 8;
    if (stages_ == 0) tiles_ = 0;
    enter(first_tile * args.cluster * kBlockColumns + part.sixteenth * kWarpColumns);
  }

  // Begins to copy the next stage, if there is one.
  __device__ __forceinline__ void copy() {
    if (tiles_ > 0) {
      copy_codes();
      copy_statistics();
      if (++stage_ == stages_) {
        stage_ = 0;
        --tiles_;
        enter(column_ + step_);
      }
    }
    cuda::end_copy_group();
    slot_ = slot_ + 1 == kStages ? 0 : slot_ + 1;
  }

  __device__ __forceinline__ cuda::SharedAddress codes(int slot) const {
    return codes_ + slot * kStageBytes;
  }
  __device__ __forceinline__ cuda::SharedAddress statistics(int slot) const {
    return statistics_ + slot * S::kStatisticBytes;
  }
  __device__ __forceinline__ const Span& span() const { return span_; }

  // Makes scales of the nested statistics of the next stage to be multiplied, in slot `slot`.
  __device__ __forceinline__ void restore(int slot) const {
    if constexpr (!S::kNested) return;
    const int lane = static_cast<int>(threadIdx.x) % cuda::kWarp;
#pragma unroll
    for (int i = 0; i < kStatisticsOfLane; ++i) {
      const float value = __uint_as_float(cuda::load_shared_word(nested_ + codes_of_lane_[i] * 4));
      if (S::kStatistics % cuda::kWarp == 0 || lane < S::kStatistics)
        cuda::store_shared(
            statistics(slot) + (i * cuda::kWarp + lane) * 4,
            __float_as_uint(math::restored_absmax(value, absmax_of_lane_[i], offset_)));
    }
    __syncwarp();
  }
  __device__ __forceinline__ int stages() const { return stages_; }

 private:
  // Rows of a stage that the warp copies by one instruction of each lane.
  static constexpr int kRowsAtOnce = cuda::kWarp / kRowChunks;
  static constexpr int kStatisticsOfLane = (S::kStatistics + cuda::kWarp - 1) / cuda::kWarp;

  __device__ __forceinline__ void enter(int column) {
    column_ = column;
    const int row = static_cast<int>(threadIdx.x) % cuda::kWarp / kRowChunks;
    left_ = static_cast<int>(args_.codes.rows) - column - row;
    from_ = args_.codes.data + (column + row) * row_bytes_ + std::int64_t{own_term_} * S::kBits / 8;
  }

  __device__ __forceinline__ void copy_codes() {
    if (own_term_ + stage_ * S::kTerms < span_.end) {
      const cuda::SharedAddress to = codes(slot_) + to_;
#pragma unroll
      for (int i = 0; i < kCopies; ++i)
        if (i * kRowsAtOnce < left_)
          // The place of a chunk in row + 4 differs in one bit.
          cuda::copy_async((to ^ i % 2 * 4 << 4) + i * kRowsAtOnce * kRowBytes,
                           from_ + i * kRowsAtOnce * row_bytes_);
    }
    from_ += kRowBytes;
  }

  // Statistic `run` of column `own` is number own * kRuns + run. Scales come first, zero points
  // follow. Nested statistics wait in registers, for restore(): copies of one word to many places
  // would be made one after another.
  __device__ __forceinline__ void copy_statistics() {
    const cuda::SharedAddress to = statistics(slot_);
    const int lane = static_cast<int>(threadIdx.x) % cuda::kWarp;
    for_statistics([&](int i, int of, int segment) {
      const auto at = static_cast<std::uint32_t>(of * args_.pitch + segment);
      if constexpr (S::kNested)
        load_nested(i, at);
      else
        copy_statistic(to + (i * cuda::kWarp + lane) * 4, at, of, segment);
    });
  }
  __device__ __forceinline__ void load_nested(int i, std::uint32_t at) {
    const BlockStatistics& s = args_.codes.statistics;
    codes_of_lane_[i] = __ldg(static_cast<const std::uint8_t*>(s.absmax) + at);
    absmax_of_lane_[i] =
        __ldg(static_cast<const float*>(s.nested_absmax) + args_.nested.quotient(at));
  }
  // Calls visit(i, column, segment) for each statistic of the stage that is the lane's: number
  // lane + 32 i.
  template <class Visit>
  __device__ __forceinline__ void for_statistics(const Visit& visit) {
    const int lane = static_cast<int>(threadIdx.x) % cuda::kWarp;
    const int term = span_.first + stage_ * S::kTerms + lane % S::kRuns * S::kRun;
    if (term >= span_.end) return;
    const int segment = segment_of<S>(args_, term);
    const int of = column_ + lane / S::kRuns;
#pragma unroll
    for (int i = 0; i < kStatisticsOfLane; ++i) {
      const int column = of + i * cuda::kWarp / S::kRuns;
      if ((S::kStatistics % cuda::kWarp == 0 || lane < S::kStatistics) &&
          column < static_cast<int>(args_.codes.rows))
        visit(i, column, segment);
    }
  }
  __device__ __forceinline__ void copy_statistic(cuda::SharedAddress to, std::uint32_t at,
                                                 int column, int segment) const {
    const WeightCodes& codes = args_.codes;
    const float* scales =
        S::kHasTable ? static_cast<const float*>(codes.statistics.absmax) : codes.scale;
    cuda::copy_async<4>(to, scales + at);
    if constexpr (S::kShifted)
      cuda::copy_async<4>(
          to + S::kStatistics * 4,
          codes.zero_point + static_cast<std::uint32_t>(column * args_.zero_point_pitch + segment));
  }

  const Args& args_;
  const Span span_;
  int stages_, tiles_, step_, column_, stage_ = 0, slot_ = 0;
  int to_, own_term_, left_;
  const std::uint8_t* from_;
  std::int64_t row_bytes_;
  cuda::SharedAddress codes_, statistics_, nested_ = 0;
  float offset_ = 0;
  std::uint32_t codes_of_lane_[kStatisticsOfLane] = {};
  float absmax_of_lane_[kStatisticsOfLane] = {};
};

// Copies the values of nested codes to shared memory. Called by all threads, before a barrier.
__device__ __forceinline__ void copy_nested_codebook(const Args& args, cuda::SharedAddress to) {
  if (threadIdx.x < kNestedEntries)
    cuda::store_shared(to + threadIdx.x * 4,
                       __float_as_uint(__ldg(args.codes.statistics.nested_codebook + threadIdx.x)));
}

// --- The input -----------------------------------------------------------------------------------

// Copies the tokens of the block's spans to shared memory, in the order in which lanes multiply
// them: of 32 terms, four times 16 bytes for the four lanes of a token. Terms beyond k are 0.
template <class S>
__device__ __forceinline__ void arrange_input(const Args& args, cuda::SharedAddress input,
                                              int rank) {
  const Gemm& gemm = args.gemm;
  const int spans = kSpans / args.cluster, first = rank * spans * args.span;
  const int quarters = spans * args.span / (kUnit / kQuad), k = static_cast<int>(gemm.k);
  const int total = static_cast<int>(gemm.m) * quarters;
  const bool high_first = args.codes.nibble_order == NibbleOrder::HighFirst;
#pragma unroll 4
  for (int i = static_cast<int>(threadIdx.x); i < total; i += kThreads) {
    const int token = i / quarters, quarter = i % quarters;
    const int lane = quarter % kQuad, term = first + quarter / kQuad * kUnit;
    const int at = term + first_term<S::kCodes>(lane);
    const auto* from = reinterpret_cast<const std::uint16_t*>(gemm.input.data) +
                       token * gemm.input.row_stride + at;
    uint2 steps[2];
#pragma unroll
    for (int step = 0; step < 2; ++step) {
      steps[step] = make_uint2(0, 0);
      if (at + step * 16 < k) steps[step] = __ldg(reinterpret_cast<const uint2*>(from + step * 16));
      steps[step] = paired<S::kCodes>(steps[step], high_first);
    }
    cuda::store_shared(input + token * args.room.token_pitch + quarter * cuda::kVectorBytes,
                       make_uint4(steps[0].x, steps[0].y, steps[1].x, steps[1].y));
  }
}

// --- What a warp multiplies ----------------------------------------------------------------------

// A statistic as it meets sums and codes.
struct Statistic {
  float scale;
  std::uint32_t shift;  // what is subtracted of decoded codes; not of a table
};

template <class S>
class Multiplier {
 public:
  using Sums = float[S::kEights][4];

  __device__ __forceinline__ Multiplier(const Args& args, cuda::SharedAddress shared,
                                        cuda::SharedAddress input, const Part& part)
      : args_(args), decoder_(args, shared + args.room.table) {
    const int lane = static_cast<int>(threadIdx.x) % cuda::kWarp, token = lane / kQuad;
#pragma unroll
    for (int i = 0; i < S::kEights; ++i)
      inputs_[i] =
          input +
          min(i * kTokens + token, static_cast<int>(args.gemm.m) - 1) * args.room.token_pitch +
          part.local * args.span * 2 + lane % kQuad * cuda::kVectorBytes;
    const int row = lane % kWarpColumns;
    row_ = row * kRowBytes;
    chunk_ = (lane / kWarpColumns ^ row % kRowChunks) << 4;
    statistic_ = lane / kQuad * S::kRuns * 4;
  }

  // Multiplies a stage, which begins `first` terms from the beginning of the span and has `left`
  // terms, and adds its runs to `sums`.
  __device__ __forceinline__ void stage(cuda::SharedAddress codes, cuda::SharedAddress statistics,
                                        int first, int left, Sums& sums) const {
    const Place place{codes, statistics, first * 2};
    if (left >= S::kTerms)
      units<true>(place, left, sums);
    else
      units<false>(place, left, sums);
  }

 private:
  struct Place {
    cuda::SharedAddress codes, statistics;
    int input;  // bytes
  };
  static constexpr int kUnitsAtOnce = S::kBits == 4 ? 2 : 1;  // of a load of matrices

  template <bool kWhole>
  __device__ __forceinline__ void units(const Place& place, int left, Sums& sums) const {
    std::uint32_t words[2][4];
    Sums run;
    Statistic own[2];
    load(place, 0, words[0]);
#pragma unroll
    for (int unit = 0; unit < S::kUnits; ++unit) {
      if (!kWhole && unit * kUnit >= left) break;
      const int loaded = unit / kUnitsAtOnce;
      if (unit % kUnitsAtOnce == 0 && unit + kUnitsAtOnce < S::kUnits)
        load(place, loaded + 1, words[(loaded + 1) % 2]);
      if (unit * kUnit % S::kRun == 0) {
        statistics(place, unit * kUnit / S::kRun, own);
#pragma unroll
        for (int i = 0; i < S::kEights; ++i)
#pragma unroll
          for (int j = 0; j < 4; ++j) run[i][j] = 0;
      }
      multiply(words[loaded % 2], unit % kUnitsAtOnce, own, place.input + unit * kUnit * 2, run);
      if ((unit + 1) * kUnit % S::kRun == 0 || (!kWhole && (unit + 1) * kUnit >= left))
        fold(run, own, sums);
    }
  }

  __device__ __forceinline__ void load(const Place& place, int pair,
                                       std::uint32_t (&words)[4]) const {
    cuda::load_matrices(words, place.codes + row_ + (chunk_ ^ pair * 2 * cuda::kVectorBytes));
  }

  // The two steps of a unit.
  __device__ __forceinline__ void multiply(const std::uint32_t (&words)[4], int half,
                                           const Statistic (&own)[2], int inputs, Sums& run) const {
    std::uint32_t low[4], high[4];  // of columns lane / 4 and lane / 4 + 8: two registers a step
    if constexpr (S::kBits == 4) {
      decoder_.decode(words[2 * half], own[0].shift, low);
      decoder_.decode(words[2 * half + 1], own[1].shift, high);
    } else {
      decoder_.decode(words[0], words[2], own[0].shift, low);
      decoder_.decode(words[1], words[3], own[1].shift, high);
    }
#pragma unroll
    for (int i = 0; i < S::kEights; ++i) {
      const uint4 in = cuda::load_shared_vector(inputs_[i] + inputs);
      const std::uint32_t first[4] = {low[0], high[0], low[1], high[1]};
      const std::uint32_t second[4] = {low[2], high[2], low[3], high[3]};
      cuda::multiply_add_floats<typename S::T>(run[i], first, in.x, in.y);
      cuda::multiply_add_floats<typename S::T>(run[i], second, in.z, in.w);
    }
  }

  // Of run `run` of the lane's two columns.
  __device__ __forceinline__ void statistics(const Place& place, int run,
                                             Statistic (&own)[2]) const {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const cuda::SharedAddress at =
          place.statistics + statistic_ + half * 8 * S::kRuns * 4 + run * 4;
      own[half].scale = __uint_as_float(cuda::load_shared_word(at));
      if constexpr (S::kShifted)
        own[half].shift = decoder_.shifted(
            static_cast<std::int32_t>(cuda::load_shared_word(at + S::kStatistics * 4)));
      else if constexpr (!S::kHasTable)
        own[half].shift = decoder_.unshifted();
    }
  }
  static __device__ __forceinline__ void fold(const Sums& run, const Statistic (&own)[2],
                                              Sums& sums) {
#pragma unroll
    for (int i = 0; i < S::kEights; ++i)
#pragma unroll
      for (int j = 0; j < 4; ++j) sums[i][j] = math::fused(run[i][j], own[j / 2].scale, sums[i][j]);
  }

  const Args& args_;
  const RegisterDecoder<typename S::T, S::kCodes> decoder_;
  cuda::SharedAddress inputs_[S::kEights];
  int row_, chunk_, statistic_;
};

// --- Partial sums --------------------------------------------------------------------------------

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
  __device__ __forceinline__ void send(const typename Multiplier<S>::Sums& sums, const Part& part,
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

// --- The kernel ----------------------------------------------------------------------------------

// The grid may have any number of clusters. Cluster i computes tiles i, i + clusters, and so on.
template <class S>
__global__ void __launch_bounds__(kThreads, 1)
    multiply_few_rows(const __grid_constant__ Args args) {
  extern __shared__ __align__(128) std::uint8_t memory[];
  const cuda::SharedAddress shared = cuda::shared_address(memory);
  const Part part(args.cluster);
  const int cluster = static_cast<int>(blockIdx.x) / args.cluster;
  const int clusters = static_cast<int>(gridDim.x) / args.cluster;
  const int tiles = (args.tiles - cluster + clusters - 1) / clusters;
  cuda::let_dependents_start();
  Ring<S> ring(args, part, shared, cluster, clusters);
  for (int i = 0; i < kStages - 1; ++i) ring.copy();
  const Parts parts(args, reinterpret_cast<cuda::Barrier*>(memory), shared + args.room.parts,
                    tiles);
  if (threadIdx.x == 0) parts.open();
  if constexpr (S::kHasTable) fill_pairs<typename S::T, kWarps>(args, shared + args.room.table);
  if constexpr (S::kNested) copy_nested_codebook(args, shared + args.room.nested);
  // Until here nothing depends on the kernel before.
  cuda::wait_for_previous();
  arrange_input<S>(args, shared + args.room.input, part.rank);
  __syncthreads();
  if (args.cluster > 1) cuda::cluster_barrier_unordered();

  const Multiplier<S> multiplier(args, shared, shared + args.room.input, part);
  const auto column_of = [&](int index) {
    return (cluster + index * clusters) * args.cluster * kBlockColumns;
  };
  const auto finish = [&](int index) {
    parts.finish(index, column_of(index) + part.rank * kBlockColumns);
  };
  int slot = 0;
#pragma unroll 1
  for (int index = 0; index < tiles; ++index) {
    typename Multiplier<S>::Sums sums = {};
#pragma unroll 1
    for (int stage = 0; stage < ring.stages(); ++stage) {
      cuda::wait_for_copy_groups<kStages - 2>();
      __syncwarp();
      ring.restore(slot);
      ring.copy();
      const int first = stage * S::kTerms;
      multiplier.stage(ring.codes(slot), ring.statistics(slot), first,
                       ring.span().end - ring.span().first - first, sums);
      slot = slot + 1 == kStages ? 0 : slot + 1;
    }
    if (index > 0) finish(index - 1);
    parts.send<S>(sums, part, index);
  }
  if (tiles > 0) finish(tiles - 1);
}

}  // namespace planq::linear::sm90::groups::few_rows
