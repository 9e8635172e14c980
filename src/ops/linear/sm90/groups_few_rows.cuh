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

#include "ops/linear/sm90/groups_few_rows_parts.cuh"

namespace planq::linear::sm90::groups::few_rows {

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
    if constexpr (!S::kWords) {
      scale_values_ = shared + args.room.scale_values;
      if (args.codes.scales.are_nested())
        offset_ = __ldg(static_cast<const float*>(args.codes.scales.stored.nested_offset));
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

  // Widens the statistics of the next stage to be multiplied, in slot `slot`.
  __device__ __forceinline__ void widen(int slot) const {
    if constexpr (!S::kWords) {
#pragma unroll
      for (int i = 0; i < kStatisticsOfLane; ++i) {
        if (!is_statistic()) break;
        const cuda::SharedAddress to = statistics(slot) + place_of(i);
        cuda::store_shared(to, __float_as_uint(widened(i)));
        if constexpr (S::kShifted)
          cuda::store_shared(to + S::kScaleBytes, static_cast<std::uint32_t>(zero_points_[i]));
      }
      __syncwarp();
    }
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
  // follow. Those that are no words wait in registers, for widen().
  __device__ __forceinline__ void copy_statistics() {
    const cuda::SharedAddress to = statistics(slot_);
    for_statistics([&](int i, int of, int segment) {
      const auto at = static_cast<std::uint32_t>(of * args_.pitch + segment);
      const auto point = static_cast<std::uint32_t>(of * args_.zero_point_pitch + segment);
      if constexpr (S::kWords)
        copy_words(to + place_of(i), at, point);
      else
        load_narrow(i, at, point);
    });
  }
  __device__ __forceinline__ void load_narrow(int i, std::uint32_t at, std::uint32_t point) {
    const SegmentScales& scales = args_.codes.scales;
    const BlockStatistics& s = scales.stored;
    if (scales.are_bytes())
      bits_[i] = __ldg(static_cast<const std::uint8_t*>(s.absmax) + at);
    else if (s.dtype == DType::Float32)
      bits_[i] = __ldg(static_cast<const std::uint32_t*>(s.absmax) + at);
    else
      bits_[i] = __ldg(static_cast<const std::uint16_t*>(s.absmax) + at);
    if (scales.are_nested())
      absmax_[i] = __ldg(static_cast<const float*>(s.nested_absmax) + args_.nested.quotient(at));
    if constexpr (S::kShifted)
      zero_points_[i] = math::load_integer(args_.codes.zero_point, point,
                                           args_.codes.zero_point_dtype, NibbleOrder::LowFirst);
  }
  __device__ __forceinline__ float widened(int i) const {
    const SegmentScales& scales = args_.codes.scales;
    if (scales.are_bytes()) {
      const float value = __uint_as_float(cuda::load_shared_word(scale_values_ + bits_[i] * 4));
      return scales.are_nested() ? math::restored_absmax(value, absmax_[i], offset_) : value;
    }
    const auto half = static_cast<std::uint16_t>(bits_[i]);
    if (scales.stored.dtype == DType::Float16) return math::widen(math::Half{half});
    return __uint_as_float(scales.stored.dtype == DType::BFloat16 ? bits_[i] << 16 : bits_[i]);
  }
  // Whether the lane has statistics, and where its number lane + 32 i is in a stage.
  static __device__ __forceinline__ bool is_statistic() {
    return S::kStatistics % cuda::kWarp == 0 || threadIdx.x % cuda::kWarp < S::kStatistics;
  }
  static __device__ __forceinline__ int place_of(int i) {
    const int number = i * cuda::kWarp + static_cast<int>(threadIdx.x) % cuda::kWarp;
    return (number / S::kRuns * S::kPitch + number % S::kRuns) * 4;
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
      if (is_statistic() && column < static_cast<int>(args_.codes.rows)) visit(i, column, segment);
    }
  }
  __device__ __forceinline__ void copy_words(cuda::SharedAddress to, std::uint32_t at,
                                             std::uint32_t point) const {
    const WeightCodes& codes = args_.codes;
    cuda::copy_async<4>(to, static_cast<const float*>(codes.scales.stored.absmax) + at);
    if constexpr (S::kShifted)
      cuda::copy_async<4>(to + S::kScaleBytes,
                          static_cast<const std::int32_t*>(codes.zero_point) + point);
  }

  const Args& args_;
  const Span span_;
  int stages_, tiles_, step_, column_, stage_ = 0, slot_ = 0;
  int to_, own_term_, left_;
  const std::uint8_t* from_;
  std::int64_t row_bytes_;
  cuda::SharedAddress codes_, statistics_, scale_values_ = 0;
  float offset_ = 0;
  // Of the stage that was copied last: scales, the absmax of nested ones, and zero points.
  std::uint32_t bits_[kStatisticsOfLane] = {};
  float absmax_[kStatisticsOfLane] = {};
  std::int32_t zero_points_[kStatisticsOfLane] = {};
};

// Writes to shared memory what each byte stands for as a scale. Called by all threads, before a
// barrier.
__device__ __forceinline__ void fill_scale_values(const SegmentScales& scales,
                                                  cuda::SharedAddress to) {
  if (threadIdx.x < kScaleValues && scales.are_bytes())
    cuda::store_shared(to + threadIdx.x * 4,
                       __float_as_uint(scales.value_of(static_cast<std::uint8_t>(threadIdx.x))));
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
    statistic_ = lane / kQuad * S::kPitch * 4;
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
      if constexpr (S::kRun < kUnit) {
        multiply_runs(words[loaded % 2], unit, place, sums);
        continue;
      }
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

  // The numbers of columns lane / 4 and lane / 4 + 8 in a unit: two registers a step.
  __device__ __forceinline__ void decode(const std::uint32_t (&words)[4], int half,
                                         const Statistic (&own)[2], std::uint32_t (&low)[4],
                                         std::uint32_t (&high)[4]) const {
    if constexpr (S::kBits == 4) {
      decoder_.decode(words[2 * half], own[0].shift, low);
      decoder_.decode(words[2 * half + 1], own[1].shift, high);
    } else {
      decoder_.decode(words[0], words[2], own[0].shift, low);
      decoder_.decode(words[1], words[3], own[1].shift, high);
    }
  }
  // The two steps of a unit.
  __device__ __forceinline__ void multiply(const std::uint32_t (&words)[4], int half,
                                           const Statistic (&own)[2], int inputs, Sums& run) const {
    std::uint32_t low[4], high[4];
    decode(words, half, own, low, high);
#pragma unroll
    for (int i = 0; i < S::kEights; ++i) {
      const uint4 in = cuda::load_shared_vector(inputs_[i] + inputs);
      const std::uint32_t first[4] = {low[0], high[0], low[1], high[1]};
      const std::uint32_t second[4] = {low[2], high[2], low[3], high[3]};
      cuda::multiply_add_floats<typename S::T>(run[i], first, in.x, in.y);
      cuda::multiply_add_floats<typename S::T>(run[i], second, in.z, in.w);
    }
  }

  // The same where each step is a run. Codes have no zero points.
  __device__ __forceinline__ void multiply_runs(const std::uint32_t (&words)[4], int unit,
                                                const Place& place, Sums& sums) const {
    static_assert(S::kRun >= kUnit || (S::kRun == kUnit / 2 && !S::kShifted));
    Statistic own[2][2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float2 scales = cuda::load_shared_pair(place.statistics + statistic_ +
                                                   half * 8 * S::kPitch * 4 + unit * 8);
      own[0][half] = {scales.x, decoder_.unshifted()};
      own[1][half] = {scales.y, decoder_.unshifted()};
    }
    std::uint32_t low[4], high[4];
    decode(words, unit % kUnitsAtOnce, own[0], low, high);
    Sums runs[2] = {};
#pragma unroll
    for (int i = 0; i < S::kEights; ++i) {
      const uint4 in = cuda::load_shared_vector(inputs_[i] + place.input + unit * kUnit * 2);
      const std::uint32_t first[4] = {low[0], high[0], low[1], high[1]};
      const std::uint32_t second[4] = {low[2], high[2], low[3], high[3]};
      cuda::multiply_add_floats<typename S::T>(runs[0][i], first, in.x, in.y);
      cuda::multiply_add_floats<typename S::T>(runs[1][i], second, in.z, in.w);
    }
    fold(runs[0], own[0], sums);
    fold(runs[1], own[1], sums);
  }

  // Of run `run` of the lane's two columns.
  __device__ __forceinline__ void statistics(const Place& place, int run,
                                             Statistic (&own)[2]) const {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const cuda::SharedAddress at =
          place.statistics + statistic_ + half * 8 * S::kPitch * 4 + run * 4;
      own[half].scale = __uint_as_float(cuda::load_shared_word(at));
      own[half].shift = decoder_.unshifted();
      if constexpr (S::kShifted)
        own[half].shift = decoder_.shifted(
            static_cast<std::int32_t>(cuda::load_shared_word(at + S::kScaleBytes)));
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
  if constexpr (!S::kWords) fill_scale_values(args.codes.scales, shared + args.room.scale_values);
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
      ring.widen(slot);
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
