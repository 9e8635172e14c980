// The largest magnitudes of rows and columns without outliers, and counts of outliers, on CUDA: a
// block takes some rows of kTileColumns columns, a warp one row of them at a time. What blocks find
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

constexpr int kTileThreads = 256, kTileWarps = kTileThreads / kWarp;
constexpr int kTileRows = 64;  // of a block
constexpr int kPerLane = kTileColumns / kWarp;
static_assert(kTileThreads == kTileColumns, "a thread has a column");
constexpr int64_t kMostBlocks = 0x7FFFFFFF;

// A lane has kPer neighbouring columns in each of kPerLane / kPer steps: those of a vector, or one.
template <int kPer>
__device__ __forceinline__ int column_of(int step, int lane) {
  return (step * kWarp + lane) * kPer;
}

// Rows of a warp that are loaded together: what the registers have room for.
template <int kPer>
constexpr int kRowsUnderWay = kPer > 1 && sizeof(In) == 2 ? 4 : 2;

// A lane's elements of a tile's part of a row; 0 behind the last column. Read once, or again later.
template <int kPer, bool kAgain>
__device__ __forceinline__ void load_part(const In* part, int64_t columns, int lane,
                                          In (&x)[kPerLane]) {
#pragma unroll
  for (int step = 0; step < kPerLane / kPer; ++step) {
    const int column = column_of<kPer>(step, lane);
    In* const to = x + step * kPer;
    if constexpr (kPer > 1) {
      if (column + kPer <= columns) {
        const uint4 v = kAgain ? cuda::load_kept(part + column) : cuda::load_once(part + column);
        memcpy(to, &v, sizeof v);
        continue;
      }
    }
#pragma unroll
    for (int i = 0; i < kPer; ++i) {
      to[i] = element_of<In>(0);
      if (column + i < columns)
        to[i] = kAgain ? part[column + i] : cuda::load_single(part + column + i);
    }
  }
}

// Where a row begins in an operand.
__device__ __forceinline__ int64_t row_offset(const IndexSpace& rows, int64_t row, int operand) {
  if (rows.rank == 0) return 0;
  if (rows.rank == 1) return row * rows.axes[0].stride[operand];
  return rows.offsets(row).at[operand];
}

// --- Maxima ------------------------------------------------------------------------------------

struct MeasureArgs {
  const In* input;
  float *row_absmax, *column_absmax;
  std::int32_t* counts;  // null: there are none
  IndexSpace rows;       // operands: input, row_absmax, counts
  int64_t row_count, columns, across;
  OutlierRule<In> rule;
};

__global__ void __launch_bounds__(kTileThreads)
    clear_maxima(const __grid_constant__ MeasureArgs args) {
  const int64_t first = static_cast<int64_t>(blockIdx.x) * kTileThreads + threadIdx.x;
  const int64_t stride = static_cast<int64_t>(gridDim.x) * kTileThreads;
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

// A lane's elements of one row: raises the lane's columns, and gives the row's largest magnitude
// and its outliers to all lanes.
struct PartFound {
  uint32_t largest;
  int outliers;
};
__device__ __forceinline__ PartFound measure_part(const In (&x)[kPerLane], OutlierRule<In> rule,
                                                  uint32_t (&columns)[kPerLane]) {
  uint32_t largest = 0;
  int outliers = 0;
#pragma unroll
  for (int i = 0; i < kPerLane; ++i) {
    const auto own = magnitude_of(x[i]);
    const bool takes = rule.takes(own);
    const uint32_t kept = takes ? 0u : own;
    outliers += takes;
    columns[i] = max(columns[i], kept);
    largest = max(largest, kept);
  }
  largest = __reduce_max_sync(kAllLanes, largest);
  return {largest, rule.any() ? __reduce_add_sync(kAllLanes, outliers) : 0};
}

template <int kPer, bool kAgain>
__device__ __forceinline__ void measure_rows(const MeasureArgs& args, int64_t first_row, int rows,
                                             int64_t across, uint32_t (&columns)[kPerLane]) {
  constexpr int kBatch = kRowsUnderWay<kPer>;
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  const int64_t first_column = across * kTileColumns;
#pragma unroll 1
  for (int i = warp; i < rows; i += kBatch * kTileWarps) {
    In x[kBatch][kPerLane];
#pragma unroll
    for (int k = 0; k < kBatch; ++k) {
      if (i + k * kTileWarps >= rows) continue;
      const int64_t at = row_offset(args.rows, first_row + i + k * kTileWarps, kMatrixInput);
      load_part<kPer, kAgain>(args.input + at + first_column, args.columns - first_column, lane,
                              x[k]);
    }
#pragma unroll
    for (int k = 0; k < kBatch; ++k) {
      if (i + k * kTileWarps >= rows) continue;
      const int64_t row = first_row + i + k * kTileWarps;
      const PartFound found = measure_part(x[k], args.rule, columns);
      if (lane != 0) continue;
      raise_shared(args.row_absmax + row_offset(args.rows, row, kMatrixAbsmax), found.largest);
      if (args.counts)
        args.counts[row_offset(args.rows, row, kMatrixOther) + across] = found.outliers;
    }
  }
}

template <int kPer, bool kAgain>
__global__ void __launch_bounds__(kTileThreads, 3)
    measure_tiles(const __grid_constant__ MeasureArgs args) {
  __shared__ uint32_t of_warps[kTileWarps][kTileColumns];
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  const int64_t tiles = (args.row_count + kTileRows - 1) / kTileRows * args.across;
  for (int64_t tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
    const int64_t down = tile / args.across, across = tile - down * args.across;
    const int64_t first_row = down * kTileRows, left = args.row_count - first_row;
    uint32_t columns[kPerLane] = {};
    measure_rows<kPer, kAgain>(
        args, first_row, static_cast<int>(left < kTileRows ? left : kTileRows), across, columns);
#pragma unroll
    for (int i = 0; i < kPerLane; ++i)
      of_warps[warp][column_of<kPer>(i / kPer, lane) + i % kPer] = columns[i];
    __syncthreads();
    uint32_t largest = 0;
#pragma unroll
    for (int i = 0; i < kTileWarps; ++i) largest = max(largest, of_warps[i][threadIdx.x]);
    const int64_t column = across * kTileColumns + threadIdx.x;
    if (column < args.columns) raise_shared(args.column_absmax + column, largest);
    __syncthreads();
  }
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

cuda::Grid tile_grid(int64_t row_count, int64_t across) {
  cuda::Grid grid{};
  const int64_t tiles = cuda::ceil_div(row_count, kTileRows) * across;
  grid.blocks = std::clamp<int64_t>(tiles, 1, kMostBlocks);
  grid.threads = dim3(kTileThreads);
  return grid;
}

template <bool kAgain>
Status preload_measure() {
  PLANQ_TRY(cuda::preload(clear_maxima));
  PLANQ_TRY(cuda::preload(measure_tiles<1, kAgain>));
  return cuda::preload(measure_tiles<kPerVector<In>, kAgain>);
}

// `kAgain`: a later launch reads the input, too.
template <bool kAgain>
Status launch_measure(const MeasureArgs& args, Bound& bound) {
  cuda::Grid grid{};
  const int64_t most = std::max(args.row_count, args.columns);
  grid.blocks = std::clamp<int64_t>(cuda::ceil_div(most, kTileThreads), 1, 1 << 16);
  grid.threads = dim3(kTileThreads);
  PLANQ_TRY(cuda::launch(clear_maxima, grid, args, bound));
  const bool vectors =
      rows_aligned(args.input, args.rows, kMatrixInput, sizeof(In), cuda::kVectorBytes);
  grid = tile_grid(args.row_count, args.across);
  return cuda::launch(vectors ? measure_tiles<kPerVector<In>, kAgain> : measure_tiles<1, kAgain>,
                      grid, args, bound);
}

}  // namespace
}  // namespace planq::outlier
