// The largest magnitudes of rows and columns without outliers, and counts of outliers, on CUDA. A
// thread block takes some rows of kPartColumns columns; each of its warps takes one row at a time.
// Atomic integer maxima join the results of thread blocks, with the same bits in any order.
#pragma once

#include <cstdint>

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
// Parts are narrow and thread blocks large, so that few of them update the maximum of a column.
constexpr int kMeasureThreads = 512, kMeasureWarps = kMeasureThreads / kWarp;
constexpr int kMeasureBlocks = 2;  // per multiprocessor
constexpr int kSteps = 2;          // vectors of a lane in a row's part
constexpr int kRowsAhead = 2;      // of a warp, loaded at the same time
constexpr int kBlockRows = 128;    // at most
static_assert(kBlockRows <= kMeasureWarps * kWarp, "a lane has a row of its warp");
constexpr int kStepColumns = kWarp * kPerVector<In>, kPartColumns = kSteps * kStepColumns;
// A part has this many tiles, for which outliers are counted; a tile has this many steps.
constexpr int kPartTiles = kPartColumns / kTileColumns, kTileSteps = kTileColumns / kStepColumns;
// The magnitudes of a lane's columns: two share a word where elements have 16 bits.
constexpr int kPerWord = 4 / sizeof(In);

// The columns from `first` on, at most `most`.
__device__ __forceinline__ int columns_left(int64_t columns, int64_t first, int most) {
  return static_cast<int>(min(columns - first, int64_t{most}));
}

// Where a row begins in an operand. kPlain: rows have a single stride.
__device__ __forceinline__ int64_t row_offset(const IndexSpace& rows, int64_t row, int operand) {
  if (rows.rank == 0) return 0;
  if (rows.rank == 1) return row * rows.axes[0].stride[operand];
  return rows.offsets(row).at[operand];
}
template <bool kPlain>
__device__ __forceinline__ int64_t offset_of(const IndexSpace& rows, int64_t row, int operand) {
  return kPlain ? row * rows.axes[0].stride[operand] : row_offset(rows, row, operand);
}

// How thread blocks share a matrix: each takes a part of the columns of some consecutive rows.
struct RowShare {
  cuda::LineDivider parts;  // of a row
  int64_t rows, blocks;
};

struct MeasureArgs {
  const In* input;
  float *row_absmax, *column_absmax;
  std::int32_t* counts;                // null: there are none
  IndexSpace rows;                     // operands: input, row_absmax, counts
  int64_t row_count, columns, across;  // across: tiles of a row
  OutlierRule<In> rule;
  RowShare share;
};

__global__ void __launch_bounds__(kClearThreads)
    clear_maxima(const __grid_constant__ MeasureArgs args) {
  cuda::let_dependents_start();
  const int64_t first = static_cast<int64_t>(blockIdx.x) * kClearThreads + threadIdx.x;
  const int64_t stride = static_cast<int64_t>(gridDim.x) * kClearThreads;
  for (int64_t row = first; row < args.row_count; row += stride)
    args.row_absmax[row_offset(args.rows, row, kMatrixAbsmax)] = 0;
  for (int64_t column = first; column < args.columns; column += stride)
    args.column_absmax[column] = 0;
}

// Maxima are never negative. So they can be compared as integers, with NaN above all numbers.
__device__ __forceinline__ void raise_shared(float* maximum, uint32_t magnitude) {
  if (magnitude == 0) return;
  atomicMax(reinterpret_cast<unsigned*>(maximum),
            float_bits<In>(static_cast<Magnitude<In>>(magnitude)));
}

// --- Words of magnitudes -----------------------------------------------------------------------

// The bits of a word without sign bits.
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
  // Whether there may be an outlier among magnitudes whose largest is this.
  __device__ __forceinline__ bool concerns(uint32_t largest) const {
    return sizeof(In) == 2 ? (largest + lack) & 0x80008000u : largest >= lack;
  }
  // Sets outliers in the word to 0, and returns a bit for each: the sign bit of its half, or bit 0.
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
  // `from` is the lane's first element, and `left` the number of elements from there to the end of
  // the row; elements after it are 0. kVectors: all vectors are aligned and whole. kAgain: they are
  // read again later, so they stay in the cache.
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

// The largest magnitudes of a lane's columns, in the order of its vectors.
struct LaneColumns {
  uint32_t words[kSteps][4] = {};
};

// The results of a warp for its part of each row: lane i holds those of row i.
struct HeldRows {
  uint32_t largest = 0;
  std::int32_t outliers[kPartTiles] = {};
};

__device__ __forceinline__ uint32_t warp_largest(uint32_t word) {
  if constexpr (sizeof(In) == 2) word = max(word & 0xFFFFu, word >> 16);
  return __reduce_max_sync(kAllLanes, word);
}

// Sets the outliers of row `i` to 0 in its words. Returns the largest remaining magnitude.
__device__ __forceinline__ uint32_t take_outliers(uint32_t (&words)[kSteps][4],
                                                  const WordRule& rule, int i, HeldRows& held) {
  const int lane = threadIdx.x % kWarp;
  uint32_t largest = 0, taken[kPartTiles] = {};
#pragma unroll
  for (int step = 0; step < kSteps; ++step)
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      // Sign bits are shifted down, bits 0 up, so that each outlier has a bit of its own.
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

// Outliers are rare: only a row that may have some takes the slow path.
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

template <bool kVectors>
__device__ __forceinline__ void put_rows(const MeasureArgs& args, int64_t first_row, int rows,
                                         int64_t across, const HeldRows& held) {
  const int lane = threadIdx.x % kWarp;
  cuda::wait_for_previous();  // what clears the maxima
  if (lane >= rows) return;
  const int64_t row = first_row + lane, first_tile = across * kPartTiles;
  raise_shared(args.row_absmax + offset_of<kVectors>(args.rows, row, kMatrixAbsmax), held.largest);
  if (!args.counts) return;
  std::int32_t* const counts =
      args.counts + offset_of<kVectors>(args.rows, row, kMatrixOther) + first_tile;
#pragma unroll
  for (int tile = 0; tile < kPartTiles; ++tile)
    if (first_tile + tile < args.across) counts[tile] = held.outliers[tile];
}

// Measures the rows of a warp, at most kWarp. The next rows are loaded while one is measured.
template <bool kVectors, bool kAgain>
__device__ __forceinline__ void measure_rows(const MeasureArgs& args, int64_t first_row, int rows,
                                             int64_t across, LaneColumns& columns) {
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
  put_rows<kVectors>(args, first_row, rows, across, held);
}

// Joins the column maxima of the warps of a thread block, and raises those in memory.
__device__ __forceinline__ void raise_columns(const MeasureArgs& args, int64_t across,
                                              const LaneColumns& columns) {
  __shared__ uint4 of_warps[kMeasureWarps][kSteps * kWarp];
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
#pragma unroll
  for (int step = 0; step < kSteps; ++step) {
    const uint32_t (&own)[4] = columns.words[step];
    of_warps[warp][step * kWarp + lane] = make_uint4(own[0], own[1], own[2], own[3]);
  }
  __syncthreads();
#pragma unroll
  for (int first = 0; first < kPartColumns; first += kMeasureThreads) {
    const int own = first + static_cast<int>(threadIdx.x);
    const int64_t column = across * kPartColumns + own;
    if (own >= kPartColumns || column >= args.columns) break;
    uint32_t largest = 0;
#pragma unroll
    for (int i = 0; i < kMeasureWarps; ++i)
      largest = larger(largest, reinterpret_cast<const uint32_t*>(of_warps[i])[own / kPerWord]);
    if constexpr (sizeof(In) == 2) largest = own % 2 == 0 ? largest & 0xFFFFu : largest >> 16;
    raise_shared(args.column_absmax + column, largest);
  }
}

template <bool kVectors, bool kAgain>
__global__ void __launch_bounds__(kMeasureThreads, kVectors ? kMeasureBlocks : 1)
    measure_tiles(const __grid_constant__ MeasureArgs args) {
  const int64_t down = args.share.parts.quotient(blockIdx.x);
  const int64_t across = blockIdx.x - down * args.share.parts.divisor;
  const int64_t first_row = down * args.share.rows;
  const int rows = static_cast<int>(min(args.row_count - first_row, args.share.rows));
  const int each = (rows + kMeasureWarps - 1) / kMeasureWarps;  // of a warp
  const int before = static_cast<int>(threadIdx.x) / kWarp * each;
  LaneColumns columns;
  measure_rows<kVectors, kAgain>(args, first_row + before, min(rows - before, each), across,
                                 columns);
  raise_columns(args, across, columns);
}

// --- Launches ----------------------------------------------------------------------------------

// Whether all rows of an operand begin at a multiple of this many bytes.
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
  PLANQ_TRY((cuda::preload(measure_tiles<false, kAgain>)));
  return cuda::preload(measure_tiles<true, kAgain>);
}

// All thread blocks get the same number of rows, at most `most`, in as few rounds as possible. With
// several rounds, some thread blocks write their results while others read. `slots` is the number
// of thread blocks that run at a time.
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

// kAgain: a later launch reads the input too.
template <bool kAgain>
Status launch_measure(MeasureArgs args, const Device& device, Bound& bound) {
  cuda::Grid grid{};
  const int64_t most = std::max(args.row_count, args.columns);
  grid.blocks = std::clamp<int64_t>(cuda::ceil_div(most, kClearThreads), 1, 1 << 16);
  grid.threads = dim3(kClearThreads);
  PLANQ_TRY(cuda::launch(clear_maxima, grid, args, bound));
  const bool vectors =
      rows_aligned(args.input, args.rows, kMatrixInput, sizeof(In), cuda::kVectorBytes) &&
      args.columns % kPerVector<In> == 0 && args.rows.rank <= 1;
  args.share = share_rows(args.row_count, cuda::ceil_div(args.columns, kPartColumns),
                          int64_t{device.multiprocessors} * kMeasureBlocks, kBlockRows);
  if (args.share.blocks == 0) return Status::success();
  // The grid cannot become too large: outputs of more than 2^31 blocks would take at least 512 GB.
  grid.blocks = args.share.blocks;
  grid.threads = dim3(kMeasureThreads);
  grid.dependent = has_dependent_launches(device.arch);
  return cuda::launch(vectors ? measure_tiles<true, kAgain> : measure_tiles<false, kAgain>, grid,
                      args, bound);
}

}  // namespace
}  // namespace planq::outlier
