// double_quantize on CUDA: maxima and counts of outliers by the tiles of absmax.cuh, sums of the
// counts, and a second look at the tiles for the codes and the list. The sums say where each tile's
// part of a row has its outliers, so the list has the order of the matrix.
#pragma once

#include "core/scratch.h"
#include "cuda/codes.cuh"
#include "ops/outlier/absmax.cuh"
#include "ops/outlier/absmax_codes.h"
#include "ops/outlier/coo.h"
#include "ops/outlier/double_quantize/desc.h"
#include "ops/outlier/prefix.h"
#include "ops/outlier/scan.cuh"

namespace planq::double_quantize {
namespace {

using cuda::kAllLanes;
using cuda::kPerVector;
using cuda::kWarp;
using outlier::CodeFactor;
using outlier::kTileColumns;
using outlier::row_offset;
using std::int64_t;
using std::uint32_t;
using std::uint8_t;
using In = cuda::Element;

// A block takes kTileRows rows of kTileColumns columns, a warp one row of them at a time.
constexpr int kTileThreads = 256, kTileWarps = kTileThreads / kWarp;
constexpr int kTileRows = 64;
constexpr int kPerLane = kTileColumns / kWarp;
static_assert(kTileThreads == kTileColumns, "a thread has a column");

// Operands of the rows, behind those of every matrix that is measured.
enum : int { kCodesOfRow = outlier::kMatrixOther, kCodesOfColumn };

struct EncodeArgs {
  const In* input;
  const float *row_absmax, *column_absmax;
  uint8_t *row_codes, *column_codes;
  IndexSpace rows;
  int64_t row_count, columns, across;
  outlier::OutlierRule<In> rule;
  math::AffineSpec<float> spec;
  // The list. Null `before`: there are no outliers, and their number is yet to be written.
  const int64_t* before;
  std::int32_t *row_index, *column_index;
  In* value;
  int64_t* count;
  int64_t capacity;
};

// --- A lane's part of a row --------------------------------------------------------------------

// A lane has kPer neighbouring columns in each of kPerLane / kPer steps: those of a vector, or one.
template <int kPer>
__device__ __forceinline__ int column_of(int step, int lane) {
  return (step * kWarp + lane) * kPer;
}

// Rows of a warp that are loaded together: what the registers have room for.
template <int kPer>
constexpr int kRowsUnderWay = kPer > 1 && sizeof(In) == 2 ? 4 : 2;

// 0 behind the last column.
template <int kPer>
__device__ __forceinline__ void load_part(const In* part, int64_t columns, int lane,
                                          In (&x)[kPerLane]) {
#pragma unroll
  for (int step = 0; step < kPerLane / kPer; ++step) {
    const int column = column_of<kPer>(step, lane);
    In* const to = x + step * kPer;
    if constexpr (kPer > 1) {
      if (column + kPer <= columns) {
        const uint4 v = cuda::load_once(part + column);
        memcpy(to, &v, sizeof v);
        continue;
      }
    }
#pragma unroll
    for (int i = 0; i < kPer; ++i) {
      to[i] = outlier::element_of<In>(0);
      if (column + i < columns) to[i] = cuda::load_single(part + column + i);
    }
  }
}

// --- Codes -------------------------------------------------------------------------------------

// Whether a quotient is the product with the inverse and two corrections: see cuda/codes.cuh, which
// is exact for these scales where the quotient is not large, and leaves a small one small. NaN is
// not among them.
__device__ __forceinline__ bool is_plain(float scale) {
  return scale >= cuda::kSmallScale<float> && scale <= cuda::kLargeScale<float>;
}

// kDivide, or the product with the inverse; kPlain: all scales are plain.
template <bool kDivide, bool kPlain>
__device__ __forceinline__ uint32_t code(float x, CodeFactor factor) {
  if constexpr (kDivide && !kPlain) return outlier::code_bits(x / factor.scale);
  return outlier::code_bits(cuda::quotient<kDivide>(x, factor.scale, factor.inverse));
}

struct LaneFactors {
  CodeFactor columns[kPerLane];
  bool plain;
};

struct LaneCodes {
  uint32_t row[kPerLane], column[kPerLane];  // in the low bytes
  uint32_t outliers;                         // a bit each
};

template <bool kDivide, bool kPlain>
__device__ __forceinline__ void encode(const In (&x)[kPerLane], outlier::OutlierRule<In> rule,
                                       CodeFactor row, const LaneFactors& factors,
                                       LaneCodes& codes) {
#pragma unroll
  for (int i = 0; i < kPerLane; ++i) {
    const bool takes = rule.takes(outlier::magnitude_of(x[i]));
    const float value = math::widen(x[i]);
    codes.row[i] = takes ? 0u : code<kDivide, kPlain>(value, row);
    codes.column[i] = takes ? 0u : code<kDivide, kPlain>(value, factors.columns[i]);
    codes.outliers |= static_cast<uint32_t>(takes) << i;
  }
}

__device__ __forceinline__ LaneCodes codes_of(const In (&x)[kPerLane], const EncodeArgs& args,
                                              CodeFactor row, const LaneFactors& factors) {
  LaneCodes codes;
  codes.outliers = 0;
  if (args.spec.quotient != Quotient::Divide)
    encode<false, true>(x, args.rule, row, factors, codes);
  else if (factors.plain && is_plain(row.scale))
    encode<true, true>(x, args.rule, row, factors, codes);
  else
    encode<true, false>(x, args.rule, row, factors, codes);
  return codes;
}

// A lane's codes of a row, as words where all columns of a step exist.
template <int kPer>
__device__ __forceinline__ void store_codes(uint8_t* part, int64_t columns, int lane,
                                            const uint32_t (&codes)[kPerLane]) {
#pragma unroll
  for (int step = 0; step < kPerLane / kPer; ++step) {
    const int column = column_of<kPer>(step, lane);
    uint32_t own[kPer];
#pragma unroll
    for (int i = 0; i < kPer; ++i) own[i] = codes[step * kPer + i];
    if (column + kPer <= columns) {
      cuda::store_word<kPer>(part + column,
                             cuda::pack<cuda::Codes::Byte>(own, NibbleOrder::LowFirst));
      continue;
    }
#pragma unroll
    for (int i = 0; i < kPer; ++i)
      if (column + i < columns) cuda::store_once(part + column + i, static_cast<uint8_t>(own[i]));
  }
}

// --- The list ----------------------------------------------------------------------------------

// The outliers of a tile's part of a row, from place `at` on, as far as there is room for them.
template <int kPer>
__device__ __forceinline__ void list_part(const EncodeArgs& args, const In (&x)[kPerLane],
                                          uint32_t outliers, int64_t row, int64_t first_column,
                                          int64_t at) {
  const int lane = threadIdx.x % kWarp;
#pragma unroll
  for (int step = 0; step < kPerLane / kPer; ++step) {
    const uint32_t own = outliers >> (step * kPer) & ((1u << kPer) - 1);
    const int64_t upto = outlier::scan_lanes(__popc(own));
    int64_t place = at + upto - __popc(own);
    at += __shfl_sync(kAllLanes, upto, kWarp - 1);
#pragma unroll
    for (int i = 0; i < kPer; ++i) {
      if (!(own >> i & 1u)) continue;
      if (place < args.capacity) {
        args.row_index[place] = static_cast<std::int32_t>(row);
        args.column_index[place] =
            static_cast<std::int32_t>(first_column + column_of<kPer>(step, lane) + i);
        args.value[place] = x[step * kPer + i];
      }
      ++place;
    }
  }
}

// The places behind the last entry; and the number of entries where nobody counts.
__device__ __forceinline__ void end_list(const EncodeArgs& args) {
  const int64_t first = static_cast<int64_t>(blockIdx.x) * kTileThreads + threadIdx.x;
  const int64_t stride = static_cast<int64_t>(gridDim.x) * kTileThreads;
  if (!args.before && first == 0) *args.count = 0;
  const int64_t kept = args.before ? outlier::kept_entries(*args.count, args.capacity) : 0;
  for (int64_t i = kept + first; i < args.capacity; i += stride) {
    args.row_index[i] = outlier::kNoIndex;
    args.column_index[i] = outlier::kNoIndex;
    args.value[i] = outlier::element_of<In>(0);
  }
}

// --- The kernel of codes -----------------------------------------------------------------------

// The factors of a tile's columns and rows.
struct TileFactors {
  CodeFactor columns[kTileColumns], rows[kTileRows];
};

__device__ __forceinline__ void find_factors(const EncodeArgs& args, int64_t first_row,
                                             int64_t first_column, TileFactors& factors) {
  const int own = threadIdx.x;
  const int64_t column = first_column + own, row = first_row + own;
  if (column < args.columns)
    factors.columns[own] = outlier::code_factor(args.spec, args.column_absmax[column]);
  if (own < kTileRows && row < args.row_count) {
    const int64_t at = row_offset(args.rows, row, outlier::kMatrixAbsmax);
    factors.rows[own] = outlier::code_factor(args.spec, args.row_absmax[at]);
  }
}

template <int kPer>
__device__ __forceinline__ LaneFactors lane_factors(const TileFactors& factors, int64_t columns) {
  LaneFactors own;
  own.plain = true;
#pragma unroll
  for (int i = 0; i < kPerLane; ++i) {
    const int column = column_of<kPer>(i / kPer, threadIdx.x % kWarp) + i % kPer;
    own.columns[i] = column < columns ? factors.columns[column] : CodeFactor{1, 1};
    own.plain = own.plain && is_plain(own.columns[i].scale);
  }
  return own;
}

template <int kPer>
__device__ __forceinline__ void encode_rows(const EncodeArgs& args, int64_t first_row, int rows,
                                            int64_t across, const TileFactors& factors) {
  constexpr int kBatch = kRowsUnderWay<kPer>;
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  const int64_t first_column = across * kTileColumns, columns = args.columns - first_column;
  const LaneFactors own = lane_factors<kPer>(factors, columns);
#pragma unroll 1
  for (int i = warp; i < rows; i += kBatch * kTileWarps) {
    In x[kBatch][kPerLane];
#pragma unroll
    for (int k = 0; k < kBatch; ++k) {
      if (i + k * kTileWarps >= rows) continue;
      const int64_t at =
          row_offset(args.rows, first_row + i + k * kTileWarps, outlier::kMatrixInput);
      load_part<kPer>(args.input + at + first_column, columns, lane, x[k]);
    }
#pragma unroll
    for (int k = 0; k < kBatch; ++k) {
      if (i + k * kTileWarps >= rows) continue;
      const int64_t row = first_row + i + k * kTileWarps;
      const LaneCodes codes = codes_of(x[k], args, factors.rows[i + k * kTileWarps], own);
      store_codes<kPer>(args.row_codes + row_offset(args.rows, row, kCodesOfRow) + first_column,
                        columns, lane, codes.row);
      store_codes<kPer>(
          args.column_codes + row_offset(args.rows, row, kCodesOfColumn) + first_column, columns,
          lane, codes.column);
      if (args.before && __any_sync(kAllLanes, codes.outliers != 0))
        list_part<kPer>(args, x[k], codes.outliers, row, first_column,
                        args.before[row * args.across + across]);
    }
  }
}

template <int kPer>
__global__ void __launch_bounds__(kTileThreads, 2)
    encode_tiles(const __grid_constant__ EncodeArgs args) {
  __shared__ TileFactors factors;
  const int64_t tiles = (args.row_count + kTileRows - 1) / kTileRows * args.across;
  for (int64_t tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
    const int64_t down = tile / args.across, across = tile - down * args.across;
    const int64_t first_row = down * kTileRows, left = args.row_count - first_row;
    find_factors(args, first_row, across * kTileColumns, factors);
    __syncthreads();
    encode_rows<kPer>(args, first_row, static_cast<int>(left < kTileRows ? left : kTileRows),
                      across, factors);
    __syncthreads();
  }
  end_list(args);
}

// --- Launches ----------------------------------------------------------------------------------

int64_t parts_of(const Fields& f) {
  return outlier::rows_of(f.shape) * outlier::column_tiles(f.shape.last());
}

outlier::Prefix book(Scratch& scratch, const Fields& f) {
  return finds_outliers(f) ? outlier::book_prefix(scratch, parts_of(f)) : outlier::Prefix{};
}

std::size_t workspace(const Descriptor& descriptor, const Device&) {
  Scratch scratch;
  book(scratch, descriptor.as<Fields>());
  return scratch.bytes();
}

Status prepare(const Descriptor&, const Device&, State&) {
  PLANQ_TRY(outlier::preload_measure<true>());
  PLANQ_TRY(outlier::preload_prefix());
  PLANQ_TRY(cuda::preload(encode_tiles<1>));
  return cuda::preload(encode_tiles<kPerVector<In>>);
}

template <class E>
E* data(const Operands& operands, Operand which) {
  return static_cast<E*>(operands[which].data);
}

Status measure(const Call& call, const outlier::Prefix& prefix, Bound& bound) {
  const Fields& f = call.fields<Fields>();
  const Operands& operands = call.operands;
  outlier::MeasureArgs args{};
  args.input = data<const In>(operands, kInput);
  args.row_absmax = data<float>(operands, kRowAbsmax);
  args.column_absmax = data<float>(operands, kColumnAbsmax);
  args.counts = prefix.counts;
  args.row_count = outlier::rows_of(f.shape);
  args.columns = f.shape.last();
  args.across = outlier::column_tiles(args.columns);
  args.rule = outlier::outlier_rule<In>(f.threshold);
  OperandView counts;  // row after row
  for (int64_t i = f.shape.rank - 2, stride = args.across; i >= 0; stride *= f.shape[i--])
    counts.strides[i] = stride;
  args.rows = outlier::matrix_rows(f.shape, {&operands[kInput], &operands[kRowAbsmax], &counts});
  return outlier::launch_measure<true>(args, call.device, bound);
}

EncodeArgs encode_args(const Fields& f, const Operands& operands, const outlier::Prefix& prefix) {
  EncodeArgs args{};
  args.input = data<const In>(operands, kInput);
  args.row_absmax = data<float>(operands, kRowAbsmax);
  args.column_absmax = data<float>(operands, kColumnAbsmax);
  args.row_codes = data<uint8_t>(operands, kRowCodes);
  args.column_codes = data<uint8_t>(operands, kColumnCodes);
  args.rows = outlier::matrix_rows(f.shape, {&operands[kInput], &operands[kRowAbsmax],
                                             &operands[kRowCodes], &operands[kColumnCodes]});
  args.row_count = outlier::rows_of(f.shape);
  args.columns = f.shape.last();
  args.across = outlier::column_tiles(args.columns);
  args.rule = outlier::outlier_rule<In>(f.threshold);
  args.spec = outlier::code_spec(f.quotient);
  args.before = prefix.before;
  args.row_index = data<std::int32_t>(operands, kRowIndex);
  args.column_index = data<std::int32_t>(operands, kColumnIndex);
  args.value = data<In>(operands, kValue);
  args.count = data<int64_t>(operands, kCount);
  args.capacity = f.capacity;
  return args;
}

cuda::Grid tile_grid(int64_t row_count, int64_t across) {
  cuda::Grid grid{};
  const int64_t tiles = cuda::ceil_div(row_count, kTileRows) * across;
  grid.blocks = std::clamp<int64_t>(tiles, 1, outlier::kMostBlocks);
  grid.threads = dim3(kTileThreads);
  return grid;
}

Status bind(const Call& call, Bound& bound) {
  const Fields& f = call.fields<Fields>();
  Scratch scratch(call.workspace);
  const outlier::Prefix prefix = book(scratch, f);
  PLANQ_TRY(measure(call, prefix, bound));
  const EncodeArgs args = encode_args(f, call.operands, prefix);
  if (finds_outliers(f)) PLANQ_TRY(outlier::launch_prefix(prefix, parts_of(f), args.count, bound));
  constexpr int kPer = kPerVector<In>;
  const bool vectors = outlier::rows_aligned(args.input, args.rows, outlier::kMatrixInput,
                                             sizeof(In), cuda::kVectorBytes) &&
                       outlier::rows_aligned(args.row_codes, args.rows, kCodesOfRow, 1, kPer) &&
                       outlier::rows_aligned(args.column_codes, args.rows, kCodesOfColumn, 1, kPer);
  return cuda::launch(vectors ? encode_tiles<kPer> : encode_tiles<1>,
                      tile_grid(args.row_count, args.across), args, bound);
}

constexpr Kernel kKernels[] = {{.op = "double_quantize",
                                .method = "tiles",
                                .dtypes = kDTypes<cuda::kElement, DType::Int8>,
                                .revision = 1,
                                .backend = Backend::Cuda,
                                .arch = {80},
                                .rank = 0,
                                .guarantee = kGuarantee,
                                .rejects = rejects<cuda::kElement>,
                                .workspace = workspace,
                                .prepare = prepare,
                                .bind = bind}};

}  // namespace
}  // namespace planq::double_quantize
