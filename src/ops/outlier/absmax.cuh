// The largest magnitudes of rows and columns without outliers, and counts of outliers, on CUDA: a
// block takes some rows of kPartColumns columns, a warp one row of them at a time. What blocks find
// meets in integer maxima, which have the same bits in any order.
#pragma once

#include <cstdint>

#include "cuda/element.cuh"
#include "cuda/key_range.cuh"
#include "cuda/launch.cuh"
#include "ops/outlier/magnitudes.h"
#include "ops/outlier/matrix_rows.h"

namespace planq::outlier {
namespace {  // each file that includes this has an element type of its own

using cuda::kAllLanes;
using cuda::kPerVector;
using cuda::kWarp;
using In = cuda::Element;
using std::uint32_t;

constexpr int kMeasureThreads = 256, kMeasureWarps = kMeasureThreads / kWarp;
constexpr int kMeasureBlocks = 4;  // of a multiprocessor
constexpr int kSteps = 4;          // vectors of a lane in a row's part
constexpr int kStepColumns = kWarp * kPerVector<In>, kPartColumns = kSteps * kStepColumns;
// Outliers are counted for so many tiles of a part, each of so many steps.
constexpr int kPartTiles = kPartColumns / kTileColumns, kTileSteps = kTileColumns / kStepColumns;
// What columns have in a lane: a magnitude in each half of a word, or in a word.
constexpr int kPerWord = 4 / sizeof(In);
constexpr int64_t kMostBlocks = 0x7FFFFFFF;

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

struct MeasureArgs {
  const In* input;
  float *row_absmax, *column_absmax;
  std::int32_t* counts;                // null: there are none
  IndexSpace rows;                     // operands: input, row_absmax, counts
  int64_t row_count, columns, across;  // across: tiles of a row
  OutlierRule<In> rule;
  // Blocks: so many parts of a row, and rows of each.
  int64_t parts, block_rows;
};

__global__ void __launch_bounds__(kMeasureThreads)
    clear_maxima(const __grid_constant__ MeasureArgs args) {
  cuda::let_dependents_start();
  const int64_t first = static_cast<int64_t>(blockIdx.x) * kMeasureThreads + threadIdx.x;
  const int64_t stride = static_cast<int64_t>(gridDim.x) * kMeasureThreads;
  for (int64_t row = first; row < args.row_count; row += stride)
    args.row_absmax[row_offset(args.rows, row, kMatrixAbsmax)] = 0;
  for (int64_t column = first; column < args.columns; column += stride)
    args.column_absmax[column] = 0;
}

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
  // `columns`: that the row has from the part's first one on; what is behind them is 0. kVectors:
  // all vectors are aligned and whole. kAgain: they are read again later.
  template <bool kVectors, bool kAgain>
  __device__ __forceinline__ void load(const In* from, int64_t columns, int lane) {
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      const int first = column(step, lane);
      v[step] = make_uint4(0, 0, 0, 0);
      if constexpr (kVectors) {
        if (first < columns)
          v[step] = kAgain ? cuda::load_kept(from + first) : cuda::load_once(from + first);
      } else {
        In each[kPerVector<In>];
#pragma unroll
        for (int i = 0; i < kPerVector<In>; ++i)
          each[i] = first + i < columns ? from[first + i] : element_of<In>(0);
        memcpy(&v[step], each, sizeof each);
      }
    }
  }
};

// The largest magnitudes of a lane's columns, as the vectors have them.
struct LaneColumns {
  uint32_t words[kSteps][4] = {};
};

// What a warp finds in its part of a row.
struct PartFound {
  uint32_t largest;
  int outliers;  // lane `i` has those of tile i
};
__device__ __forceinline__ PartFound measure_part(const Part<kSteps>& part, const WordRule& rule,
                                                  int lane, LaneColumns& columns) {
  uint32_t largest = 0, any = 0, taken[kPartTiles] = {};
#pragma unroll
  for (int step = 0; step < kSteps; ++step) {
    const uint32_t words[4] = {part.v[step].x, part.v[step].y, part.v[step].z, part.v[step].w};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      uint32_t own = words[i] & kMagnitudes;
      // Sign bits go down, bits 0 up: each has a place of its own.
      const uint32_t bits = rule.take(own);
      taken[step / kTileSteps] |= sizeof(In) == 2 ? bits >> i : bits << (step % kTileSteps * 4 + i);
      columns.words[step][i] = larger(columns.words[step][i], own);
      largest = larger(largest, own);
    }
  }
  if constexpr (sizeof(In) == 2) largest = max(largest & 0xFFFFu, largest >> 16);
  PartFound found{__reduce_max_sync(kAllLanes, largest), 0};
#pragma unroll
  for (int tile = 0; tile < kPartTiles; ++tile) any |= taken[tile];
  if (!__any_sync(kAllLanes, any != 0)) return found;
#pragma unroll
  for (int tile = 0; tile < kPartTiles; ++tile) {
    const int count = __reduce_add_sync(kAllLanes, __popc(taken[tile]));
    if (lane == tile) found.outliers = count;
  }
  return found;
}

// --- Kernels -----------------------------------------------------------------------------------

// The rows of a warp: every kMeasureWarps-th of the block's.
template <bool kVectors, bool kAgain>
__device__ __forceinline__ void measure_rows(const MeasureArgs& args, int64_t first_row, int rows,
                                             int64_t across, LaneColumns& columns) {
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  const int64_t first_column = across * kPartColumns, first_tile = across * kPartTiles;
  const WordRule rule(args.rule);
#pragma unroll 1
  for (int i = warp; i < rows; i += kMeasureWarps) {
    const int64_t row = first_row + i;
    const int64_t at = offset_of<kVectors>(args.rows, row, kMatrixInput);
    Part<kSteps> part;
    part.template load<kVectors, kAgain>(args.input + at + first_column,
                                         args.columns - first_column, lane);
    cuda::wait_for_previous();  // what clears the maxima
    const PartFound found = measure_part(part, rule, lane, columns);
    if (lane == 0)
      raise_shared(args.row_absmax + offset_of<kVectors>(args.rows, row, kMatrixAbsmax),
                   found.largest);
    if (args.counts && lane < kPartTiles && first_tile + lane < args.across)
      args.counts[offset_of<kVectors>(args.rows, row, kMatrixOther) + first_tile + lane] =
          found.outliers;
  }
}

// The maxima of a block's columns from those of its warps.
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
    uint32_t largest = 0;
#pragma unroll
    for (int i = 0; i < kMeasureWarps; ++i)
      largest = larger(largest, reinterpret_cast<const uint32_t*>(of_warps[i])[own / kPerWord]);
    if constexpr (sizeof(In) == 2) largest = own % 2 == 0 ? largest & 0xFFFFu : largest >> 16;
    const int64_t column = across * kPartColumns + own;
    if (column < args.columns) raise_shared(args.column_absmax + column, largest);
  }
}

template <bool kVectors, bool kAgain>
__global__ void __launch_bounds__(kMeasureThreads, kVectors ? kMeasureBlocks : 1)
    measure_tiles(const __grid_constant__ MeasureArgs args) {
  const int64_t down = blockIdx.x / args.parts, across = blockIdx.x - down * args.parts;
  const int64_t first_row = down * args.block_rows, left = args.row_count - first_row;
  LaneColumns columns;
  measure_rows<kVectors, kAgain>(args, first_row, static_cast<int>(min(left, args.block_rows)),
                                 across, columns);
  cuda::wait_for_previous();  // of warps without rows
  raise_columns(args, across, columns);
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
  PLANQ_TRY((cuda::preload(measure_tiles<false, kAgain>)));
  return cuda::preload(measure_tiles<true, kAgain>);
}

// All blocks have equally many rows, and run in as few rounds as give them no more than kMostRows:
// what they find at their end is then found while others read.
constexpr int64_t kMostRows = 128;
cuda::Grid share_rows(MeasureArgs& args, const Device& device) {
  args.parts = std::max<int64_t>(cuda::ceil_div(args.columns, kPartColumns), 1);
  const int64_t slots = int64_t{device.multiprocessors} * kMeasureBlocks;
  const int64_t down = std::max<int64_t>(slots / args.parts, 1);  // of a round
  const int64_t rounds = std::clamp<int64_t>(cuda::ceil_div(args.row_count, down * kMostRows), 1,
                                             kMostBlocks / (2 * down * args.parts));
  const int64_t rows = cuda::ceil_div(args.row_count, down * rounds);
  args.block_rows = cuda::ceil_div(std::max<int64_t>(rows, 1), kMeasureWarps) * kMeasureWarps;
  cuda::Grid grid{};
  grid.blocks = args.parts * cuda::ceil_div(args.row_count, args.block_rows);
  grid.threads = dim3(kMeasureThreads);
  return grid;
}

// `kAgain`: a later launch reads the input, too.
template <bool kAgain>
Status launch_measure(MeasureArgs args, const Device& device, Bound& bound) {
  cuda::Grid grid{};
  const int64_t most = std::max(args.row_count, args.columns);
  grid.blocks = std::clamp<int64_t>(cuda::ceil_div(most, kMeasureThreads), 1, 1 << 16);
  grid.threads = dim3(kMeasureThreads);
  PLANQ_TRY(cuda::launch(clear_maxima, grid, args, bound));
  const bool vectors =
      rows_aligned(args.input, args.rows, kMatrixInput, sizeof(In), cuda::kVectorBytes) &&
      args.columns % kPerVector<In> == 0 && args.rows.rank <= 1;
  grid = share_rows(args, device);
  if (grid.blocks == 0) return Status::success();
  grid.dependent = device.arch >= 90;
  return cuda::launch(vectors ? measure_tiles<true, kAgain> : measure_tiles<false, kAgain>, grid,
                      args, bound);
}

}  // namespace
}  // namespace planq::outlier
