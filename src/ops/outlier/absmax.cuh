// The largest magnitudes of rows and columns without outliers, and counts of outliers, on CUDA: a
// block takes some rows of kPartColumns columns, a warp one row of them at a time. What blocks find
// meets in integer maxima, which have the same bits in any order. These are cleared by a launch
// before; or, where all blocks run at the same time, by the blocks while their first rows are on
// their way, which takes a barrier of the grid but no launch.
#pragma once

#include <cooperative_groups.h>

#include <cstdint>
#include <utility>

#include "cuda/element.cuh"
#include "cuda/key_range.cuh"
#include "cuda/launch.cuh"
#include "cuda/lines.cuh"
#include "ops/outlier/magnitudes.h"
#include "ops/outlier/matrix_rows.h"

namespace planq::outlier {
namespace {  // each file that includes this has an element type of its own

using cuda::kAllLanes;
using cuda::kPerVector;
using cuda::kWarp;
using In = cuda::Element;
using std::uint32_t;

constexpr int kClearThreads = 256;
// Parts are narrow and blocks large, so that few blocks meet in the maxima of a column.
constexpr int kMeasureThreads = 512, kMeasureWarps = kMeasureThreads / kWarp;
constexpr int kMeasureBlocks = 2;  // of a multiprocessor
constexpr int kSteps = 2;          // vectors of a lane in a row's part
constexpr int kRowsAhead = 2;      // of a warp, on their way at the same time
// Rows of a block, at most: where blocks run one after another, and where all run together.
constexpr int kBlockRows = 128, kTogetherRows = kMeasureWarps * kWarp;
static_assert(kBlockRows <= kTogetherRows, "a lane has a row of its warp");
constexpr int kStepColumns = kWarp * kPerVector<In>, kPartColumns = kSteps * kStepColumns;
// Outliers are counted for so many tiles of a part, each of so many steps.
constexpr int kPartTiles = kPartColumns / kTileColumns, kTileSteps = kTileColumns / kStepColumns;
// What columns have in a lane: a magnitude in each half of a word, or in a word.
constexpr int kPerWord = 4 / sizeof(In);
constexpr int64_t kMostBlocks = 0x7FFFFFFF;

// The columns of a part, as far as parts of `most` go.
__device__ __forceinline__ int columns_left(int64_t columns, int64_t first, int most) {
  return static_cast<int>(min(columns - first, int64_t{most}));
}

// Where a row begins in an operand. kPlain: rows are equally far from each other.
__device__ __forceinline__ int64_t row_offset(const IndexSpace& rows, int64_t row, int operand) {
  if (rows.rank == 0) return 0;
  if (rows.rank == 1) return row * rows.axes[0].stride[operand];
  return rows.offsets(row).at[operand];
}
template <bool kPlain>
__device__ __forceinline__ int64_t offset_of(const IndexSpace& rows, int64_t row, int operand) {
  return kPlain ? row * rows.axes[0].stride[operand] : row_offset(rows, row, operand);
}

// How blocks share a matrix: each has a part of the columns of some rows that follow one another.
struct RowShare {
  cuda::LineDivider parts;  // of a row
  int64_t rows, blocks;
};

// Sums of chunks of counts that stand row after row. Null `data`: nobody asks for them.
struct CountSums {
  int64_t* data;
  int64_t chunks;
  cuda::LineDivider chunk;  // counts of one

  __device__ __forceinline__ void add(int64_t index, std::int32_t count) const {
    if (!data || count == 0) return;
    atomicAdd(reinterpret_cast<unsigned long long*>(data) + chunk.quotient(index),
              static_cast<unsigned long long>(count));
  }
};

struct MeasureArgs {
  const In* input;
  float *row_absmax, *column_absmax;
  std::int32_t* counts;                // null: there are none
  CountSums sums;                      // of the counts
  IndexSpace rows;                     // operands: input, row_absmax, counts
  int64_t row_count, columns, across;  // across: tiles of a row
  OutlierRule<In> rule;
  RowShare share;
};

// What blocks of so many threads clear together: the maxima, and the sums.
template <int kThreads>
__device__ __forceinline__ void clear(const MeasureArgs& args) {
  const int64_t first = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  const int64_t stride = static_cast<int64_t>(gridDim.x) * kThreads;
  for (int64_t row = first; row < args.row_count; row += stride)
    args.row_absmax[row_offset(args.rows, row, kMatrixAbsmax)] = 0;
  for (int64_t column = first; column < args.columns; column += stride)
    args.column_absmax[column] = 0;
  if (!args.sums.data) return;
  for (int64_t chunk = first; chunk < args.sums.chunks; chunk += stride) args.sums.data[chunk] = 0;
}

__global__ void __launch_bounds__(kClearThreads)
    clear_maxima(const __grid_constant__ MeasureArgs args) {
  cuda::let_dependents_start();
  clear<kClearThreads>(args);
}

// Who clears, as a block sees it. All threads call both; wait() joins them, too.
template <bool kTogether>
struct Cleared {  // by a launch before
  __device__ __forceinline__ void begin(const MeasureArgs&) {}
  __device__ __forceinline__ void wait() {
    cuda::wait_for_previous();
    __syncthreads();
  }
};
template <>
struct Cleared<true> {  // by all blocks
  cooperative_groups::grid_group::arrival_token token;

  __device__ __forceinline__ void begin(const MeasureArgs& args) {
    clear<kMeasureThreads>(args);
    token = cooperative_groups::this_grid().barrier_arrive();
  }
  __device__ __forceinline__ void wait() {
    cooperative_groups::this_grid().barrier_wait(std::move(token));
  }
};

// The maxima are no numbers below 0, and NaN is above them, as their bits are.
__device__ __forceinline__ void raise_shared(float* maximum, uint32_t magnitude) {
  if (magnitude == 0) return;
  atomicMax(reinterpret_cast<unsigned*>(maximum),
            float_bits<In>(static_cast<Magnitude<In>>(magnitude)));
}

// --- Words of magnitudes -----------------------------------------------------------------------

// The bits of a word that magnitudes have.
constexpr uint32_t kMagnitudes = sizeof(In) == 2 ? 0x7FFF7FFFu : 0x7FFFFFFFu;

// Which magnitudes of a word are outliers.
struct WordRule {
  uint32_t lack, beyond;

  __device__ __forceinline__ explicit WordRule(OutlierRule<In> rule) {
    if constexpr (sizeof(In) == 2) {
      lack = rule.any() ? (0x8000u - rule.least) * 0x00010001u : 0u;
      beyond = (0x7FFFu - kInfinity<In>)*0x00010001u;
    } else {
      lack = rule.least;
      beyond = rule.any() ? kInfinity<In> - rule.least : 0u;
    }
  }
  // Whether there may be any among magnitudes of which this is the largest.
  __device__ __forceinline__ bool concerns(uint32_t largest) const {
    return sizeof(In) == 2 ? (largest + lack) & 0x80008000u : largest >= lack;
  }
  // Takes them out of the word, and returns a bit for each: the sign bit of its half, or bit 0.
  __device__ __forceinline__ uint32_t take(uint32_t& word) const {
    if constexpr (sizeof(In) == 2) {
      // The sums set the sign bit of a half exactly from `least` on and beyond infinity, and never
      // carry into the next.
      const uint32_t taken = (word + lack) & ~(word + beyond) & 0x80008000u;
      word &= ~cuda::signs_of_halves(taken);
      return taken;
    } else {
      const bool taken = word - lack <= beyond;
      if (taken) word = 0;
      return taken;
    }
  }
};

__device__ __forceinline__ uint32_t larger(uint32_t a, uint32_t b) {
  return sizeof(In) == 2 ? __vmaxu2(a, b) : max(a, b);
}

// A lane's vectors of a row: those of kSteps steps, each a warp's vectors.
template <int kSteps>
struct Part {
  uint4 v[kSteps];

  __device__ __forceinline__ static int column(int step, int lane) {
    return (step * kWarp + lane) * kPerVector<In>;
  }
  // `from`: the lane's first element. `left`: that the row has from there on; what is behind them
  // is 0. kVectors: all vectors are aligned and whole. kAgain: they are read again later.
  template <bool kVectors, bool kAgain>
  __device__ __forceinline__ void load(const In* from, int left) {
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      const int first = column(step, 0);
      v[step] = make_uint4(0, 0, 0, 0);
      if constexpr (kVectors) {
        if (first < left)
          v[step] = kAgain ? cuda::load_kept(from + first) : cuda::load_once(from + first);
      } else {
        In each[kPerVector<In>];
#pragma unroll
        for (int i = 0; i < kPerVector<In>; ++i)
          each[i] = first + i < left ? from[first + i] : element_of<In>(0);
        memcpy(&v[step], each, sizeof each);
      }
    }
  }
};

// The largest magnitudes of a lane's columns, as the vectors have them.
struct LaneColumns {
  uint32_t words[kSteps][4] = {};
};

// What a warp finds in its part of rows: lane i has it of row i.
struct HeldRows {
  uint32_t largest = 0;
  std::int32_t outliers[kPartTiles] = {};
};

__device__ __forceinline__ uint32_t warp_largest(uint32_t word) {
  if constexpr (sizeof(In) == 2) word = max(word & 0xFFFFu, word >> 16);
  return __reduce_max_sync(kAllLanes, word);
}

// Takes the outliers of row `i` out of its words. Returns what is then the largest magnitude.
__device__ __forceinline__ uint32_t take_outliers(uint32_t (&words)[kSteps][4],
                                                  const WordRule& rule, int i, HeldRows& held) {
  const int lane = threadIdx.x % kWarp;
  uint32_t largest = 0, taken[kPartTiles] = {};
#pragma unroll
  for (int step = 0; step < kSteps; ++step)
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      // Sign bits go down, bits 0 up: each has a place of its own.
      const uint32_t bits = rule.take(words[step][k]);
      taken[step / kTileSteps] |= sizeof(In) == 2 ? bits >> k : bits << (step % kTileSteps * 4 + k);
      largest = larger(largest, words[step][k]);
    }
#pragma unroll
  for (int tile = 0; tile < kPartTiles; ++tile) {
    const int count = __reduce_add_sync(kAllLanes, __popc(taken[tile]));
    if (lane == i) held.outliers[tile] = count;
  }
  return warp_largest(largest);
}

// Outliers are few: only a row whose largest magnitude is one is looked at closely.
__device__ __forceinline__ void measure_part(const Part<kSteps>& part, const WordRule& rule, int i,
                                             LaneColumns& columns, HeldRows& held) {
  uint32_t words[kSteps][4], largest = 0;
#pragma unroll
  for (int step = 0; step < kSteps; ++step) {
    const uint32_t own[4] = {part.v[step].x, part.v[step].y, part.v[step].z, part.v[step].w};
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      words[step][k] = own[k] & kMagnitudes;
      largest = larger(largest, words[step][k]);
    }
  }
  largest = warp_largest(largest);
  if (rule.concerns(largest)) largest = take_outliers(words, rule, i, held);
  if (threadIdx.x % kWarp == i) held.largest = largest;
#pragma unroll
  for (int step = 0; step < kSteps; ++step)
#pragma unroll
    for (int k = 0; k < 4; ++k)
      columns.words[step][k] = larger(columns.words[step][k], words[step][k]);
}

// --- Kernels -----------------------------------------------------------------------------------

// The rows of a warp, at most kWarp. The next ones are on their way while one is looked at, and the
// first ones during `meanwhile`.
template <bool kVectors, bool kAgain, class Meanwhile>
__device__ __forceinline__ HeldRows measure_rows(const MeasureArgs& args, int64_t first_row,
                                                 int rows, int64_t across, LaneColumns& columns,
                                                 const Meanwhile& meanwhile) {
  constexpr int kAhead = kVectors ? kRowsAhead : 1;
  const int64_t first_column = across * kPartColumns;
  const int own = Part<kSteps>::column(0, static_cast<int>(threadIdx.x) % kWarp);
  const int left = columns_left(args.columns, first_column, kPartColumns) - own;
  const In* next = args.input + first_column + own;
  if (kVectors) next += offset_of<true>(args.rows, first_row, kMatrixInput);
  Part<kSteps> parts[kAhead];
  const auto load = [&](int i, Part<kSteps>& part) {
    if (i >= rows) return;
    const int64_t at = kVectors ? 0 : row_offset(args.rows, first_row + i, kMatrixInput);
    part.template load<kVectors, kAgain>(next + at, left);
    if (kVectors) next += args.rows.axes[0].stride[kMatrixInput];
  };
#pragma unroll
  for (int k = 0; k < kAhead; ++k) load(k, parts[k]);
  meanwhile();
  const WordRule rule(args.rule);
  HeldRows held;
#pragma unroll 1
  for (int i = 0; i < rows; i += kAhead) {
#pragma unroll
    for (int k = 0; k < kAhead; ++k) {
      if (i + k >= rows) break;
      measure_part(parts[k], rule, i + k, columns, held);
      load(i + k + kAhead, parts[k]);
    }
  }
  return held;
}

template <bool kVectors>
__device__ __forceinline__ void put_rows(const MeasureArgs& args, int64_t first_row, int rows,
                                         int64_t across, const HeldRows& held) {
  const int lane = threadIdx.x % kWarp;
  if (lane >= rows) return;
  const int64_t row = first_row + lane, first_tile = across * kPartTiles;
  raise_shared(args.row_absmax + offset_of<kVectors>(args.rows, row, kMatrixAbsmax), held.largest);
  if (!args.counts) return;
  std::int32_t* const counts =
      args.counts + offset_of<kVectors>(args.rows, row, kMatrixOther) + first_tile;
#pragma unroll
  for (int tile = 0; tile < kPartTiles; ++tile) {
    if (first_tile + tile >= args.across) break;
    counts[tile] = held.outliers[tile];
    args.sums.add(row * args.across + first_tile + tile, held.outliers[tile]);
  }
}

// What the warps of a block find in its columns.
struct BlockColumns {
  uint4 of_warps[kMeasureWarps][kSteps * kWarp];

  __device__ __forceinline__ void put(const LaneColumns& columns) {
    const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      const uint32_t (&own)[4] = columns.words[step];
      of_warps[warp][step * kWarp + lane] = make_uint4(own[0], own[1], own[2], own[3]);
    }
  }
  __device__ __forceinline__ uint32_t largest(int column) const {
    uint32_t word = 0;
#pragma unroll
    for (int i = 0; i < kMeasureWarps; ++i)
      word = larger(word, reinterpret_cast<const uint32_t*>(of_warps[i])[column / kPerWord]);
    if constexpr (sizeof(In) == 4) return word;
    return column % 2 == 0 ? word & 0xFFFFu : word >> 16;
  }
};

__device__ __forceinline__ void raise_columns(const MeasureArgs& args, int64_t across,
                                              const BlockColumns& block) {
#pragma unroll
  for (int first = 0; first < kPartColumns; first += kMeasureThreads) {
    const int own = first + static_cast<int>(threadIdx.x);
    const int64_t column = across * kPartColumns + own;
    if (own >= kPartColumns || column >= args.columns) break;
    raise_shared(args.column_absmax + column, block.largest(own));
  }
}

template <bool kVectors, bool kAgain, bool kTogether>
__global__ void __launch_bounds__(kMeasureThreads, kVectors ? kMeasureBlocks : 1)
    measure_tiles(const __grid_constant__ MeasureArgs args) {
  __shared__ BlockColumns block;
  const int64_t down = args.share.parts.quotient(blockIdx.x);
  const int64_t across = blockIdx.x - down * args.share.parts.divisor;
  const int64_t first_row = down * args.share.rows;
  const int rows = static_cast<int>(min(args.row_count - first_row, args.share.rows));
  const int each = (rows + kMeasureWarps - 1) / kMeasureWarps;  // of a warp
  const int before = static_cast<int>(threadIdx.x) / kWarp * each, own = min(rows - before, each);
  Cleared<kTogether> cleared;
  LaneColumns columns;
  const HeldRows held = measure_rows<kVectors, kAgain>(args, first_row + before, own, across,
                                                       columns, [&] { cleared.begin(args); });
  block.put(columns);
  cleared.wait();
  put_rows<kVectors>(args, first_row + before, own, across, held);
  raise_columns(args, across, block);
}

// --- Launches ----------------------------------------------------------------------------------

// Whether all rows of an operand begin with a word of so many bytes.
bool rows_aligned(const void* data, const IndexSpace& rows, int operand, int element_bytes,
                  int bytes) {
  bool aligned = cuda::aligned_to(data, bytes);
  for (int i = 0; i < rows.rank; ++i)
    aligned = aligned && rows.axes[i].stride[operand] * element_bytes % bytes == 0;
  return aligned;
}

template <bool kAgain>
Status preload_measure() {
  PLANQ_TRY(cuda::preload(clear_maxima));
  PLANQ_TRY((cuda::preload(measure_tiles<false, kAgain, false>)));
  PLANQ_TRY((cuda::preload(measure_tiles<true, kAgain, false>)));
  return cuda::preload(measure_tiles<true, kAgain, true>);
}

// All blocks have equally many rows, and run in as few rounds as give them no more than `most`:
// what they find at their end is then found while others read. `slots`: blocks that run at a time.
RowShare share_rows(int64_t row_count, int64_t parts, int64_t slots, int64_t most) {
  parts = std::max<int64_t>(parts, 1);
  const int64_t down = std::max<int64_t>(slots / parts, 1);  // of a round
  const int64_t rounds = std::max<int64_t>(cuda::ceil_div(row_count, down * most), 1);
  RowShare share;
  share.rows = std::max<int64_t>(cuda::ceil_div(row_count, down * rounds), 1);
  share.blocks = parts * cuda::ceil_div(row_count, share.rows);
  share.parts = cuda::LineDivider(parts, share.blocks);
  return share;
}

cuda::Grid measure_grid(const RowShare& share) {
  cuda::Grid grid{};
  grid.blocks = share.blocks;
  grid.threads = dim3(kMeasureThreads);
  return grid;
}

// In two launches.
template <bool kAgain>
Status launch_apart(const MeasureArgs& args, bool vectors, bool dependent, Bound& bound) {
  cuda::Grid clear{};
  const int64_t most = std::max({args.row_count, args.columns, args.sums.chunks});
  clear.blocks = std::clamp<int64_t>(cuda::ceil_div(most, kClearThreads), 1, 1 << 16);
  clear.threads = dim3(kClearThreads);
  PLANQ_TRY(cuda::launch(clear_maxima, clear, args, bound));
  if (args.share.blocks == 0) return Status::success();
  cuda::Grid grid = measure_grid(args.share);
  grid.dependent = dependent;
  return cuda::launch(
      vectors ? measure_tiles<true, kAgain, false> : measure_tiles<false, kAgain, false>, grid,
      args, bound);
}

// `kAgain`: a later launch reads the input, too.
template <bool kAgain>
Status launch_measure(MeasureArgs args, const Device& device, Bound& bound) {
  const bool vectors =
      rows_aligned(args.input, args.rows, kMatrixInput, sizeof(In), cuda::kVectorBytes) &&
      args.columns % kPerVector<In> == 0 && args.rows.rank <= 1;
  const int64_t parts = cuda::ceil_div(args.columns, kPartColumns);
  const int64_t slots = int64_t{device.multiprocessors} * kMeasureBlocks;
  args.share = share_rows(args.row_count, parts, slots, kBlockRows);
  const auto apart = [&](Bound& otherwise) {
    return launch_apart<kAgain>(args, vectors, device.arch >= 90, otherwise);
  };
  MeasureArgs together = args;
  together.share = share_rows(args.row_count, parts, slots, kTogetherRows);
  if (!vectors || together.share.blocks == 0 || together.share.blocks > slots) return apart(bound);
  cuda::Grid grid = measure_grid(together.share);
  grid.cooperative = true;
  // A stream with a share of the multiprocessors gets the same bits in two launches.
  return cuda::launch_or(measure_tiles<true, kAgain, true>, grid, together, bound, apart);
}

}  // namespace
}  // namespace planq::outlier
