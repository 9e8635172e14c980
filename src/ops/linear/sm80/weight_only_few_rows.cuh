// Accumulation::TensorSm90 for few rows of input and 4-bit weights, on mma.sync. Such a gemm takes
// as long as it takes to read and to dequantize the weight.
//
// A block computes tiles of 16 columns of the output, for all rows, kTiles of them at a time. Its
// warps take slices of 128 terms in turn; each slice is a chain of mma.sync from +0. After each
// round of slices, threads add the slices to the totals in their order.
//
// A statistic is what dequantizes a segment of codes: a scale, and perhaps a zero point. A run is
// 64 terms of a column, which always have one statistic.
#pragma once

#include "cuda/divider.cuh"
#include "cuda/launch.cuh"
#include "cuda/mma.cuh"
#include "ops/linear/simt/gemm.cuh"
#include "ops/linear/weight_only/pair_table.cuh"

namespace planq::linear::weight_only_few_rows {

inline constexpr int kWarps = 8, kThreads = kWarps * cuda::kWarp;
inline constexpr int kBlocks = 2;    // on a multiprocessor
inline constexpr int kColumns = 16;  // of a tile: rows of mma.sync's operand a, the weight
inline constexpr int kRows = 8;      // of the input: rows of mma.sync's operand b
inline constexpr int kMostRows = 2 * kRows;
inline constexpr int kGroup = 16;  // terms of a step
inline constexpr int kSlice = math::kTensorCoreSlice, kGroups = kSlice / kGroup;
inline constexpr int kRun = 64;  // terms that share a statistic
inline constexpr int kRuns = kSlice / kRun;
inline constexpr int kQuad = 4;  // lanes that share a column
inline constexpr int kLaneCodes = kSlice / kQuad;
// Slices of a tile that a warp loads ahead.
template <int kEights>
inline constexpr int kLoads = kEights == 1 ? 4 : 2;

struct Args : CodesArgs {
  Gemm gemm;
  cuda::Divider segments;  // divides by the runs of a segment
  cuda::Divider nested;
  std::int32_t column_segments;  // statistics from a column to the next
  std::int32_t blocks;           // of one gemm of the batch
  std::int32_t tiles;            // of 16 columns
};

// --- What a warp reads -------------------------------------------------------------------------

// What a lane loads of a slice of a tile: 16 bytes of codes in column lane / 4 and as many in
// column lane / 4 + 8, and one statistic. The quad of lanes has two columns of two runs: lane % 4
// says which statistic the lane loads.
struct Loaded {
  uint4 codes[2];
  float scale;  // if statistics are nested: the absmax of the nested block
  int other;    // zero point or, if statistics are nested, the statistic's code
};

// Loads what a lane needs, from any tile and slice of the weight.
class Reader {
 public:
  __device__ __forceinline__ explicit Reader(const Args& args) : args_(args) {
    const int lane = static_cast<int>(threadIdx.x) % cuda::kWarp;
    const std::int64_t row_bytes = args.codes.row_stride / 2;
    codes_ = args.codes.data + lane / kQuad * row_bytes + lane % kQuad * (kLaneCodes / 2);
    half_ = 8 * row_bytes;
    own_term_ = lane % kQuad * kLaneCodes;
    own_run_ = lane % kRuns;
    own_column_ = lane / kQuad + lane % kQuad / kRuns * 8;
  }

  // Codes beyond the weight are 0. The sums of such columns are not stored, and such terms are not
  // multiplied.
  __device__ __forceinline__ void load(int tile, int slice, Loaded& held) const {
    const std::uint8_t* from = codes_ + 2 * half_ * tile + slice * (kSlice / 2);
    const auto terms = static_cast<int>(args_.codes.terms);
    if (slice * kSlice + own_term_ < terms) {
      const bool whole = tile * kColumns + kColumns <= static_cast<int>(args_.codes.rows);
      held.codes[0] = held.codes[1] = make_uint4(0, 0, 0, 0);
      if (whole || has(tile, 0)) held.codes[0] = cuda::load_past_l1(from);
      if (whole || has(tile, 8)) held.codes[1] = cuda::load_past_l1(from + half_);
    }
    const int run = slice * kRuns + own_run_;
    const int column = min(tile * kColumns + own_column_, static_cast<int>(args_.codes.rows) - 1);
    held.other = 0;  // a table is indexed by it even if there is no such run
    if (run * kRun < terms) load_statistic(column, run, held);
  }

 private:
  // Whether the lane's column exists: of the tile's first eight columns (half 0), or of its last
  // eight (half 8).
  __device__ __forceinline__ bool has(int tile, int half) const {
    return tile * kColumns + half + static_cast<int>(threadIdx.x) % cuda::kWarp / kQuad <
           static_cast<int>(args_.codes.rows);
  }
  __device__ __forceinline__ void load_statistic(int column, int run, Loaded& held) const {
    const WeightCodes& codes = args_.codes;
    const BlockStatistics& s = codes.statistics;
    const auto in_column =
        static_cast<int>(args_.segments.quotient(static_cast<std::uint32_t>(run)));
    const int at = column * args_.column_segments + in_column;
    if (s.nested_block_size != 0) {
      held.other = __ldg(static_cast<const std::uint8_t*>(s.absmax) + at);
      held.scale = __ldg(static_cast<const float*>(s.nested_absmax) +
                         args_.nested.quotient(static_cast<std::uint32_t>(at)));
      return;
    }
    held.scale =
        __ldg((codes.has_blocks() ? static_cast<const float*>(s.absmax) : codes.scale) + at);
    if (codes.zero_point)
      held.other = __ldg(codes.zero_point + column * codes.zero_point_row + in_column);
  }

  const Args& args_;
  const std::uint8_t* codes_;
  std::int64_t half_;
  int own_term_, own_run_, own_column_;
};

// A lane's statistic, restored if it was nested.
struct Statistic {
  float scale;
  int zero_point;
};
__device__ __forceinline__ Statistic statistic_of(const Args& args, const Loaded& held) {
  const BlockStatistics& s = args.codes.statistics;
  if (s.nested_block_size == 0) return {held.scale, held.other};
  return {math::restored_absmax(s.nested_codebook[held.other], held.scale,
                                *static_cast<const float*>(s.nested_offset)),
          0};
}

// Distributes codes among the four lanes of a column. Each lane has loaded eight bytes, the 16
// codes of one group. Each lane gets two bytes of every group: the terms that it multiplies.
struct Exchange {
  bool upper;
  std::uint32_t own, sent;  // selectors: what a lane keeps and what it sends in the second exchange
  std::uint32_t first, second;  // selectors: what it has in the end, in the order of the groups

  __device__ __forceinline__ Exchange() {
    const int t = static_cast<int>(threadIdx.x) % kQuad;
    upper = t & 2;
    own = t & 1 ? 0x7632 : 0x5410;
    sent = t & 1 ? 0x5410 : 0x7632;
    // After two exchanges, the lane has halves of two words: its own low half has group t, its high
    // half group t ^ 2; the other lane's low half has group t ^ 1, its high half group t ^ 3.
    const auto half = [&](int group) -> std::uint32_t {
      const int away = group ^ t;
      const std::uint32_t at = (away & 1 ? 4 : 0) + (away & 2 ? 2 : 0);
      return at | (at + 1) << 4;
    };
    first = half(0) | half(1) << 8;
    second = half(2) | half(3) << 8;
    for (std::uint32_t* each : {&own, &sent, &first, &second}) cuda::keep(*each);
  }

  // to[0] gets groups 0 and 1, to[1] groups 2 and 3.
  __device__ __forceinline__ void operator()(std::uint32_t low, std::uint32_t high,
                                             std::uint32_t (&to)[2]) const {
    const std::uint32_t kept = upper ? high : low;
    const std::uint32_t got = __shfl_xor_sync(cuda::kAllLanes, upper ? low : high, 2);
    const std::uint32_t mine = __byte_perm(kept, got, own);
    const std::uint32_t theirs = __shfl_xor_sync(cuda::kAllLanes, __byte_perm(kept, got, sent), 1);
    to[0] = __byte_perm(mine, theirs, first);
    to[1] = __byte_perm(mine, theirs, second);
  }
};

// --- What it multiplies --------------------------------------------------------------------------

// A lane's sums of a slice: 16 columns by kEights times eight rows.
template <int kEights>
using Sums = float[kEights][4];

// A lane's part of a slice of the input: of each group four neighbouring terms, of row lane / 4 of
// every eight rows.
template <int kEights>
using Inputs = uint2[kEights][kGroups];

// The input of one gemm of the batch.
struct InputRows {
  const std::uint16_t* numbers;  // from the lane's first one on
  std::int64_t row_stride;
  int rows, terms;

  __device__ __forceinline__ InputRows(const Gemm& whole, int batch)
      : row_stride(whole.input.row_stride),
        rows(static_cast<int>(whole.m)),
        terms(static_cast<int>(whole.k)) {
    const int lane = static_cast<int>(threadIdx.x) % cuda::kWarp;
    numbers = reinterpret_cast<const std::uint16_t*>(whole.input.data) +
              whole.batch.offsets(batch).at[kMovedInput] + lane / kQuad * row_stride +
              lane % kQuad * 4;
  }

  template <int kEights>
  __device__ __forceinline__ void load(int slice, Inputs<kEights>& inputs) const {
    const int own = static_cast<int>(threadIdx.x) % cuda::kWarp / kQuad;
#pragma unroll
    for (int eight = 0; eight < kEights; ++eight) {
      const auto* from = numbers + eight * kRows * row_stride + slice * kSlice;
      const int left = eight * kRows + own < rows ? terms - slice * kSlice : 0;
#pragma unroll
      for (int group = 0; group < kGroups; ++group) {
        inputs[eight][group] = make_uint2(0, 0);
        if (group * kGroup < left)
          inputs[eight][group] = __ldg(reinterpret_cast<const uint2*>(from + group * kGroup));
      }
    }
  }
};

// A code less its zero point has to be rounded once. In float32 it is, if the zero point is an
// exact float32. Other zero points take far_difference().
__device__ __forceinline__ bool is_near(int zero_point) {
  constexpr int kExact = 1 << 23;
  return zero_point <= kExact && zero_point >= -kExact;
}
__device__ __noinline__ inline float far_difference(float code, int zero_point) {
  return static_cast<float>(static_cast<std::int64_t>(code) - zero_point);
}

// Dequantizes two bytes of each of two groups in a column, to operand a of mma.sync.
template <class T, bool kShifted>
__device__ __forceinline__ void dequantize(const PairTable& pairs, std::uint32_t word,
                                           const Statistic& own, std::uint32_t (&fragments)[2][2]) {
  float2 values[4] = {pairs.at<0>(word), pairs.at<1>(word), pairs.at<2>(word), pairs.at<3>(word)};
  if constexpr (kShifted) {
    const auto shift = static_cast<float>(own.zero_point);
    const bool near = is_near(own.zero_point);
#pragma unroll
    for (float2& pair : values) {
      if (near)
        pair = {pair.x - shift, pair.y - shift};
      else
        pair = {far_difference(pair.x, own.zero_point), far_difference(pair.y, own.zero_point)};
    }
  }
#pragma unroll
  for (int i = 0; i < 4; ++i)
    fragments[i / 2][i % 2] = cuda::pair_of(values[i].x * own.scale, values[i].y * own.scale, T{});
}

// The codes that a lane multiplies of a slice of a tile, by column, by the parity of the group, and
// by run. A word has two groups.
struct LaneCodes {
  std::uint32_t words[2][2][2];
  Statistic own;

  __device__ __forceinline__ LaneCodes(const Args& args, const Exchange& exchange,
                                       const Loaded& held)
      : own(statistic_of(args, held)) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      exchange(held.codes[i].x, held.codes[i].y, words[i][0]);
      exchange(held.codes[i].z, held.codes[i].w, words[i][1]);
    }
  }
};

template <class T, int kEights, bool kShifted>
__device__ __forceinline__ void multiply_tile(const PairTable& pairs, const LaneCodes& lane_codes,
                                              int runs, const Inputs<kEights>& inputs,
                                              Sums<kEights>& sums) {
  const int lane = static_cast<int>(threadIdx.x) % cuda::kWarp;
#pragma unroll
  for (int run = 0; run < kRuns; ++run) {
    if (run >= runs) break;
    std::uint32_t fragments[2][2][2][2];  // by column, parity of the group, group of this parity,
                                          // half of the group
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int from = lane / kQuad * kQuad + i * kRuns + run;
      Statistic own{__shfl_sync(cuda::kAllLanes, lane_codes.own.scale, from), 0};
      if constexpr (kShifted)
        own.zero_point = __shfl_sync(cuda::kAllLanes, lane_codes.own.zero_point, from);
#pragma unroll
      for (int parity = 0; parity < 2; ++parity)
        dequantize<T, kShifted>(pairs, lane_codes.words[i][parity][run], own, fragments[i][parity]);
    }
#pragma unroll
    for (int group = 0; group < kGroups / kRuns; ++group) {
      const auto& first = fragments[0][group % 2][group / 2];
      const auto& second = fragments[1][group % 2][group / 2];
      const std::uint32_t operand[4] = {first[0], second[0], first[1], second[1]};
#pragma unroll
      for (int eight = 0; eight < kEights; ++eight) {
        const uint2 in = inputs[eight][run * (kGroups / kRuns) + group];
        cuda::multiply_add_floats<T>(sums[eight], operand, in.x, in.y);
      }
    }
  }
}

// Stores a slice's sums in shared memory, by row and column.
template <int kEights>
__device__ __forceinline__ void store_sums(const Sums<kEights>& sums, int rows, float* to) {
  const int lane = static_cast<int>(threadIdx.x) % cuda::kWarp;
#pragma unroll
  for (int eight = 0; eight < kEights; ++eight)
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int row = eight * kRows + lane % kQuad * 2 + i % 2;
      if (row < rows) to[row * kColumns + lane / kQuad + i / 2 * 8] = sums[eight][i];
    }
}

// --- The kernel ----------------------------------------------------------------------------------

// Where a block is. In a step, each warp has one slice of kTiles tiles. When all slices of these
// tiles are done, the next kTiles tiles follow.
template <int kTiles>
struct Step {
  int tile, slice;  // the first of the kTiles tiles, and the slice of this warp
  __device__ __forceinline__ void advance(int slices) {
    slice += kWarps;
    if (slice - static_cast<int>(threadIdx.x) / cuda::kWarp < slices) return;
    slice = static_cast<int>(threadIdx.x) / cuda::kWarp;
    tile += kTiles;
  }
};

template <class T, int kEights, int kTiles, bool kShifted>
class Block {
 public:
  static constexpr int kSums = kEights * kRows * kColumns;
  static constexpr int kKept = kTiles * kSums;  // sums of a warp in a step
  static constexpr int kEach = (kKept + kThreads - 1) / kThreads;
  static constexpr int kAhead = kLoads<kEights> / kTiles;  // steps that are loaded ahead
  static constexpr std::uint32_t kKeptBytes = 2 * kWarps * kKept * sizeof(float);
  // The stored sums lie below the table if they fit there, above it if not. The first kilobyte of
  // shared memory belongs to the system.
  static constexpr bool kBelow = kKeptBytes <= PairTable::kTableBytes - 1024;
  static constexpr std::uint32_t kSharedBytes =
      2 * PairTable::kTableBytes - 1024 + (kBelow ? 0 : kKeptBytes);

  __device__ __forceinline__ Block(const Args& args, int batch, cuda::SharedAddress table,
                                   float* kept, int first, int last)
      : args_(args),
        pairs_(table),
        reader_(args),
        input_(args.gemm, batch),
        kept_(kept),
        batch_(batch),
        first_(first),
        last_(last),
        warp_(static_cast<int>(threadIdx.x) / cuda::kWarp),
        slices_((input_.terms + kSlice - 1) / kSlice) {}

  __device__ __forceinline__ void run() {
    Loaded ring[kAhead][kTiles];
    Step<kTiles> now{first_, warp_}, ahead = now;
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
#pragma unroll
      for (int c = 0; c < kTiles; ++c) load_tile(ahead, c, ring[i][c]);
      ahead.advance(slices_);
    }
    Inputs<kEights> inputs;
    if (now.slice < slices_) input_.load<kEights>(now.slice, inputs);
    int buffer = 0;
#pragma unroll 1
    while (now.tile < last_) {
#pragma unroll
      for (int i = 0; i < kAhead; ++i) {
        if (now.tile >= last_) break;
        step(now, ahead, ring[i], inputs, buffer);
        ahead.advance(slices_);
        now.advance(slices_);
        buffer ^= 1;
      }
    }
  }

 private:
  __device__ __forceinline__ void load_tile(const Step<kTiles>& step, int c, Loaded& held) const {
    if (step.tile + c < last_ && step.slice < slices_)
      reader_.load(step.tile + c, step.slice, held);
  }

  __device__ __forceinline__ void step(const Step<kTiles>& now, const Step<kTiles>& ahead,
                                       Loaded (&held)[kTiles], Inputs<kEights>& inputs,
                                       int buffer) {
    float* kept = kept_ + buffer * kWarps * kKept;
    const int runs = min(input_.terms / kRun - now.slice * kRuns, kRuns);
#pragma unroll
    for (int c = 0; c < kTiles; ++c) {
      if (now.tile + c >= last_ || now.slice >= slices_) {
        load_tile(ahead, c, held[c]);  // what was not loaded may not index a table
        continue;
      }
      const LaneCodes lane_codes(args_, exchange_, held[c]);
      load_tile(ahead, c, held[c]);
      Sums<kEights> sums = {};
      multiply_tile<T, kEights, kShifted>(pairs_, lane_codes, runs, inputs, sums);
      store_sums<kEights>(sums, input_.rows, kept + warp_ * kKept + c * kSums);
    }
    Step<kTiles> next = now;
    next.advance(slices_);
    if (next.tile < last_ && next.slice < slices_) input_.load<kEights>(next.slice, inputs);
    // The sums overwrite those of the step before last. These were read before the last barrier.
    __syncthreads();
    add_slices(now, kept);
  }

  // Adds the slices of all warps to the totals, in their order. After the last slice, stores the
  // outputs.
  __device__ __forceinline__ void add_slices(const Step<kTiles>& now, const float* kept) {
    const int round = now.slice - warp_, count = min(slices_ - round, kWarps);
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const int at = static_cast<int>(threadIdx.x) + i * kThreads;
      const int c = at / kSums, row = at % kSums / kColumns;
      if (at >= kKept || row >= input_.rows) continue;
      float total = round == 0 ? 0.0f : totals_[i];
#pragma unroll
      for (int w = 0; w < kWarps; ++w)
        if (w < count) total = total + kept[w * kKept + at];
      totals_[i] = total;
      const std::int64_t column = std::int64_t{now.tile + c} * kColumns + at % kColumns;
      if (round + kWarps >= slices_ && now.tile + c < last_ && column < args_.gemm.n)
        finish_output(
            OutputPlace(args_.gemm,
                        (std::int64_t{batch_} * input_.rows + row) * args_.gemm.n + column),
            total);
    }
  }

  const Args& args_;
  const PairTable pairs_;
  const Reader reader_;
  const InputRows input_;
  const Exchange exchange_;
  float* kept_;
  int batch_, first_, last_, warp_, slices_;
  float totals_[kEach];
};

template <class T, int kEights, int kTiles, bool kShifted>
__global__ void __launch_bounds__(kThreads, kBlocks)
    multiply_few_rows(const __grid_constant__ Args args) {
  using Work = Block<T, kEights, kTiles, kShifted>;
  std::uint8_t* const shared = reinterpret_cast<std::uint8_t*>(cuda::dynamic_shared());
  const cuda::SharedAddress begin = cuda::shared_address_of(shared);
  const cuda::SharedAddress table =
      (begin + PairTable::kTableBytes - 1) & ~cuda::SharedAddress{PairTable::kTableBytes - 1};
  std::uint8_t* const at_table = shared + (table - begin);
  auto* const kept =
      reinterpret_cast<float*>(Work::kBelow ? shared : at_table + PairTable::kTableBytes);
  const int batch = static_cast<int>(blockIdx.x) / args.blocks;
  const int block = static_cast<int>(blockIdx.x) - batch * args.blocks;
  PairTable::fill(reinterpret_cast<float2*>(at_table), args, kThreads);
  __syncthreads();
  const auto share = [&](int i) {
    return static_cast<int>(std::int64_t{i} * args.tiles / args.blocks);
  };
  Work(args, batch, table, kept, share(block), share(block + 1)).run();
}

// --- Launches ------------------------------------------------------------------------------------

// Whether the kernels take a gemm: few rows, codes that are vectors, and float32 statistics for
// whole runs, which begin anew with each column.
inline bool takes(const Gemm& gemm) {
  const WeightCodes& codes = *gemm.weight.codes;
  const BlockStatistics& s = codes.statistics;
  const std::int64_t segment = std::max<std::int64_t>(codes.segment_size, 1);
  const double segments =
      static_cast<double>(codes.rows) * static_cast<double>(codes.terms / segment);
  return gemm.m <= kMostRows && has_fours(gemm, gemm.input, kMovedInput) &&
         (codes.has_blocks() || codes.scale) && gemm.k % kRun == 0 && segment % kRun == 0 &&
         gemm.k % segment == 0 && has_code_vectors(codes) &&
         (!codes.has_blocks() || s.dtype == DType::Float32) &&
         (codes.has_blocks() || codes.scale_row <= cuda::kMaxIndex) &&
         s.nested_block_size <= cuda::kMaxIndex && segments <= cuda::kMaxIndex &&
         static_cast<double>(codes.rows) * static_cast<double>(codes.scale_row) <= cuda::kMaxIndex;
}

inline Args args_of(const Gemm& gemm) {
  const WeightCodes& codes = *gemm.weight.codes;
  Args args{CodesArgs(codes), gemm, {}, {}, 0, 0, 0};
  const std::int64_t nested = std::max<std::int64_t>(codes.statistics.nested_block_size, 1);
  args.segments = cuda::Divider(static_cast<std::uint32_t>(codes.segment_size / kRun));
  args.nested = cuda::Divider(static_cast<std::uint32_t>(nested));
  args.column_segments = static_cast<std::int32_t>(
      codes.has_blocks() ? codes.terms / codes.segment_size : codes.scale_row);
  args.tiles = static_cast<std::int32_t>(cuda::ceil_div(gemm.n, kColumns));
  return args;
}

// How many tiles a block computes at a time: all that it has, up to the number that is fastest.
inline int tiles_at_a_time(const Gemm& gemm, std::int64_t slots) {
  const std::int64_t each =
      cuda::ceil_div(cuda::ceil_div(gemm.n, kColumns) * gemm.batch.size(), slots);
  if (gemm.m > kRows || gemm.weight.codes->zero_point) return 2;
  return each == 1 ? 1 : each == 2 ? 2 : 4;
}

// Calls visit(kernel, its shared memory).
template <class T, int kEights, int kTiles, bool kShifted, class Visit>
Status visit_block(const Visit& visit) {
  return visit(multiply_few_rows<T, kEights, kTiles, kShifted>,
               static_cast<int>(Block<T, kEights, kTiles, kShifted>::kSharedBytes));
}
template <class T, class Visit>
Status visit_tiles(std::int64_t rows, int tiles, bool shifted, const Visit& visit) {
  if (rows > kRows)
    return shifted ? visit_block<T, 2, 2, true>(visit) : visit_block<T, 2, 2, false>(visit);
  if (shifted) return visit_block<T, 1, 2, true>(visit);
  if (tiles == 1) return visit_block<T, 1, 1, false>(visit);
  return tiles == 2 ? visit_block<T, 1, 2, false>(visit) : visit_block<T, 1, 4, false>(visit);
}
template <class Visit>
Status visit_kernel(DType values, std::int64_t rows, int tiles, bool shifted, const Visit& visit) {
  return values == DType::Float16 ? visit_tiles<math::Half>(rows, tiles, shifted, visit)
                                  : visit_tiles<math::Bfloat16>(rows, tiles, shifted, visit);
}

inline Status preload(DType values) {
  const auto load = [](auto kernel, int bytes) { return cuda::preload(kernel, bytes); };
  for (const bool shifted : {false, true}) {
    PLANQ_TRY(visit_kernel(values, kMostRows, 2, shifted, load));
    for (const int tiles : {1, 2, 4}) PLANQ_TRY(visit_kernel(values, kRows, tiles, shifted, load));
  }
  return Status::success();
}
inline Status launch(const Gemm& gemm, const Device& device, Bound& bound) {
  Args args = args_of(gemm);
  const std::int64_t slots = std::int64_t{device.multiprocessors} * kBlocks;
  const std::int64_t batches = gemm.batch.size();
  args.blocks =
      static_cast<std::int32_t>(std::min<std::int64_t>(args.tiles, cuda::ceil_div(slots, batches)));
  cuda::Grid grid{.blocks = args.blocks * batches, .threads = dim3(kThreads)};
  return visit_kernel(gemm.weight.dtype, gemm.m, tiles_at_a_time(gemm, slots),
                      gemm.weight.codes->zero_point != nullptr, [&](auto kernel, int bytes) {
                        grid.shared_bytes = bytes;
                        return cuda::launch(kernel, grid, args, bound);
                      });
}

}  // namespace planq::linear::weight_only_few_rows
