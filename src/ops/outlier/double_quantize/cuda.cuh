// double_quantize on CUDA, in three passes: maxima and counts of outliers by the tiles of
// absmax.cuh; prefix sums of the counts; codes and the list. The prefix sums say where each tile's
// part of a row begins in the list, so the list has the order of the matrix.
#pragma once

#include "core/scratch.h"
#include "cuda/codes.cuh"
#include "cuda/prefix.h"
#include "cuda/scan.cuh"
#include "ops/outlier/absmax.cuh"
#include "ops/outlier/absmax_codes.h"
#include "ops/outlier/coo.h"
#include "ops/outlier/double_quantize/desc.h"

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

// A thread block takes at most kTileRows rows of kTileColumns columns, a warp one row at a time.
constexpr int kTileThreads = 256, kTileWarps = kTileThreads / kWarp;
constexpr int kTileBlocks = sizeof(In) == 2 ? 4 : 3;  // per multiprocessor; registers fit
constexpr int kTileRows = 128;
static_assert(kTileThreads == kTileColumns && kTileRows <= kTileThreads,
              "a thread has a column, and a row");
constexpr int64_t kMostBlocks = 0x7FFFFFFF;
constexpr int kSteps = outlier::kTileSteps;
using Part = outlier::Part<kSteps>;
constexpr int kRowsAhead = 4 / kSteps;  // of a warp, loaded at the same time
// Codes of a vector.
using CodeWord = cuda::Word<kPerVector<In>>;

// Further operands with rows, after those that every measured matrix has.
enum : int { kCodesOfRow = outlier::kMatrixOther, kCodesOfColumn };

struct EncodeArgs {
  const In* input;
  const float *row_absmax, *column_absmax;
  uint8_t *row_codes, *column_codes;
  IndexSpace rows;
  int64_t row_count, columns, across;
  int64_t tiles;
  outlier::RowShare share;  // parts of kTileColumns
  outlier::OutlierRule<In> rule;
  math::AffineSpec<float> spec;
  // The list. If `before` is null, there are no outliers, and this kernel writes their number.
  const int64_t* before;
  std::int32_t *row_index, *column_index;
  In* value;
  int64_t* count;
  int64_t capacity;
};

// --- Codes -------------------------------------------------------------------------------------

// Whether quotients by this scale may be computed as a product with the inverse and two
// corrections. That is exact for these scales if the quotient is not large (see cuda/codes.cuh). It
// is not: an element is at most 127 times its scale, or the next float.
__device__ __forceinline__ bool is_plain(float scale) {
  return scale >= cuda::kSmallScale<float> && scale <= cuda::kLargeScale<float>;
}

// The factors of a tile's columns and rows.
struct TileFactors {
  CodeFactor columns[kTileColumns], rows[kTileRows];
};

// The factors of a lane's columns.
struct LaneFactors {
  CodeFactor columns[kSteps][kPerVector<In>];
  bool plain;

  __device__ __forceinline__ LaneFactors(const TileFactors& factors, int lane) : plain(true) {
#pragma unroll
    for (int step = 0; step < kSteps; ++step)
#pragma unroll
      for (int i = 0; i < kPerVector<In>; ++i) {
        columns[step][i] = factors.columns[Part::column(step, lane) + i];
        plain = plain && is_plain(columns[step][i].scale);
      }
  }
};

struct Codes {
  CodeWord row, column;
};

// The codes of a vector without outliers, if all scales are plain: by quotients (kDivide), or by
// products with the inverse.
template <bool kDivide>
__device__ __forceinline__ Codes plain_codes(const uint4& v, CodeFactor row,
                                             const CodeFactor (&columns)[kPerVector<In>]) {
  uint32_t of_row[kPerVector<In>], of_column[kPerVector<In>];
#pragma unroll
  for (int i = 0; i < kPerVector<In>; ++i) {
    const float x = cuda::element_of<In>(v, i);
    of_row[i] = cuda::rounded(cuda::quotient<kDivide>(x, row.scale, row.inverse));
    of_column[i] = cuda::rounded(cuda::quotient<kDivide>(x, columns[i].scale, columns[i].inverse));
  }
  return {cuda::pack<cuda::Codes::Byte>(of_row, NibbleOrder::LowFirst),
          cuda::pack<cuda::Codes::Byte>(of_column, NibbleOrder::LowFirst)};
}

// The same, computed as the definition says.
__device__ __noinline__ Codes codes_slowly(uint4 v, bool divides, CodeFactor row,
                                           const CodeFactor* columns) {
  const auto code = [divides](float x, CodeFactor by) -> CodeWord {
    return outlier::code_bits(divides ? x / by.scale : x * by.inverse) & 0xFFu;
  };
  Codes codes{};
#pragma unroll 1
  for (int i = 0; i < kPerVector<In>; ++i) {
    const float x = cuda::element_of<In>(v, 0);
    codes.row |= code(x, row) << 8 * i;
    codes.column |= code(x, columns[i]) << 8 * i;
    // The next element comes to the front.
    if constexpr (sizeof(In) == 4)
      v = make_uint4(v.y, v.z, v.w, 0);
    else
      v = make_uint4(__funnelshift_r(v.x, v.y, 16), __funnelshift_r(v.y, v.z, 16),
                     __funnelshift_r(v.z, v.w, 16), v.w >> 16);
  }
  return codes;
}

// Sets the outliers of a vector to 0, and returns a bit for each.
__device__ __forceinline__ uint32_t take_outliers(const outlier::WordRule& rule, uint4& v) {
  uint32_t words[4] = {v.x, v.y, v.z, v.w}, found = 0;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    uint32_t magnitudes = words[i] & outlier::kMagnitudes;
    const uint32_t bits = rule.take(magnitudes);
    if constexpr (sizeof(In) == 2) {
      words[i] &= ~cuda::signs_of_halves(bits);
      found |= bits >> (15 - 2 * i);  // of elements 2 i and 2 i + 1: 15 bits apart
    } else {
      if (bits != 0) words[i] = 0;
      found |= bits << i;
    }
  }
  v = make_uint4(words[0], words[1], words[2], words[3]);
  return sizeof(In) == 2 ? (found | found >> 15) & 0xFFu : found;
}

// Stores the codes of a vector, of which `left` columns are in the row. kVectors: all are, or none.
template <bool kVectors>
__device__ __forceinline__ void store_codes(uint8_t* to, int left, CodeWord codes) {
  if constexpr (kVectors) {
    if (left > 0) cuda::store_word<kPerVector<In>>(to, codes);
  } else {
#pragma unroll
    for (int i = 0; i < kPerVector<In>; ++i)
      if (i < left) cuda::store_once(to + i, static_cast<uint8_t>(codes >> 8 * i));
  }
}

// --- The list ----------------------------------------------------------------------------------

__device__ __forceinline__ In element(const uint4& v, int i) {
  const uint32_t words[4] = {v.x, v.y, v.z, v.w};
  constexpr int kPerWord = 4 / sizeof(In);
  const uint32_t bits = words[i / kPerWord] >> (8 * sizeof(In) * (i % kPerWord));
  return math::bit_cast<In>(static_cast<cuda::Word<sizeof(In)>>(bits));
}

// Lists the outliers of a tile's part of a row, from position `at` on, up to the capacity.
__device__ __forceinline__ void list_part(const EncodeArgs& args, const uint4& v, uint32_t own,
                                          int64_t row, int64_t first_column, int64_t& at) {
  const int64_t upto = cuda::scan_lanes<int64_t>(__popc(own));
  int64_t place = at + upto - __popc(own);
  at += __shfl_sync(kAllLanes, upto, kWarp - 1);
#pragma unroll
  for (int i = 0; i < kPerVector<In>; ++i) {
    if (!(own >> i & 1u)) continue;
    if (place < args.capacity) {
      args.row_index[place] = static_cast<std::int32_t>(row);
      args.column_index[place] = static_cast<std::int32_t>(first_column + i);
      args.value[place] = element(v, i);
    }
    ++place;
  }
}

// Marks the positions after the last entry as empty. If no outliers are looked for, it also writes
// their number, 0.
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

__device__ __forceinline__ void find_factors(const EncodeArgs& args, int64_t first_row,
                                             int64_t first_column, TileFactors& factors) {
  const int own = threadIdx.x;
  const int64_t column = first_column + own, row = first_row + own;
  factors.columns[own] = column < args.columns
                             ? outlier::code_factor(args.spec, args.column_absmax[column])
                             : CodeFactor{1, 1};
  if (own < kTileRows && row < args.row_count) {
    const int64_t at = row_offset(args.rows, row, outlier::kMatrixAbsmax);
    factors.rows[own] = outlier::code_factor(args.spec, args.row_absmax[at]);
  }
}

// Whether a vector may have outliers.
__device__ __forceinline__ bool concerns(const outlier::WordRule& rule, const uint4& v) {
  const uint32_t first = outlier::larger(v.x & outlier::kMagnitudes, v.y & outlier::kMagnitudes);
  const uint32_t second = outlier::larger(v.z & outlier::kMagnitudes, v.w & outlier::kMagnitudes);
  return rule.concerns(outlier::larger(first, second));
}

// The tile of a thread block, and this lane's columns in it.
struct LaneTile {
  int64_t first_row, across;
  int left;  // from the lane's first column on

  __device__ __forceinline__ LaneTile(const EncodeArgs& args, int64_t tile) {
    const int64_t down = args.share.parts.quotient(tile);
    across = tile - down * args.share.parts.divisor;
    first_row = down * args.share.rows;
    left = outlier::columns_left(args.columns, across * kTileColumns, kTileColumns) - lane_column();
  }
  __device__ __forceinline__ static int lane_column() {
    return Part::column(0, static_cast<int>(threadIdx.x) % kWarp);
  }
  __device__ __forceinline__ int64_t first_column() const {
    return across * kTileColumns + lane_column();
  }
  __device__ __forceinline__ int rows(const EncodeArgs& args) const {
    return static_cast<int>(min(args.row_count - first_row, args.share.rows));
  }
};

// Encodes a warp's part of a row.
template <bool kVectors>
__device__ __forceinline__ void encode_part(const EncodeArgs& args, Part& part, int64_t row,
                                            const LaneTile& tile, CodeFactor factor,
                                            const LaneFactors& own, const TileFactors& factors) {
  const bool plain = own.plain && is_plain(factor.scale);
  const bool divides = args.spec.quotient == Quotient::Divide;
  const outlier::WordRule rule(args.rule);
  uint8_t* const of_row = args.row_codes +
                          outlier::offset_of<kVectors>(args.rows, row, kCodesOfRow) +
                          tile.first_column();
  uint8_t* const of_column = args.column_codes +
                             outlier::offset_of<kVectors>(args.rows, row, kCodesOfColumn) +
                             tile.first_column();
  int64_t at = -1;
#pragma unroll
  for (int step = 0; step < kSteps; ++step) {
    const int column = Part::column(step, 0);
    if (__any_sync(kAllLanes, concerns(rule, part.v[step]))) {
      const uint4 whole = part.v[step];
      const uint32_t outliers = take_outliers(rule, part.v[step]);
      if (__any_sync(kAllLanes, outliers != 0)) {
        if (at < 0) at = args.before[row * args.across + tile.across];
        list_part(args, whole, outliers, row, tile.first_column() + column, at);
      }
    }
    Codes codes;
    if (!plain)
      codes = codes_slowly(part.v[step], divides, factor,
                           factors.columns + tile.lane_column() + column);
    else if (divides)
      codes = plain_codes<true>(part.v[step], factor, own.columns[step]);
    else
      codes = plain_codes<false>(part.v[step], factor, own.columns[step]);
    store_codes<kVectors>(of_row + column, tile.left - column, codes.row);
    store_codes<kVectors>(of_column + column, tile.left - column, codes.column);
  }
}

// Rows that are being copied to shared memory for a warp. Each lane reads only what it copied.
struct RowQueue {
  uint4 places[kRowsAhead][kTileWarps][kSteps][kWarp];

  __device__ __forceinline__ uint4& place(int slot, int step) {
    return places[slot][threadIdx.x / kWarp][step][threadIdx.x % kWarp];
  }
  // `left` is the number of columns from the lane's first one to the end of the row.
  __device__ __forceinline__ void send(int slot, const In* from, int left) {
#pragma unroll
    for (int step = 0; step < kSteps; ++step)
      if (Part::column(step, 0) < left)
        cuda::copy_once(&place(slot, step), from + Part::column(step, 0));
  }
  __device__ __forceinline__ Part take(int slot, int left) {
    Part part;
#pragma unroll
    for (int step = 0; step < kSteps; ++step)
      part.v[step] = Part::column(step, 0) < left ? place(slot, step) : make_uint4(0, 0, 0, 0);
    return part;
  }
};

// The rows of a warp, every kTileWarps-th of the tile. Without vectors, they are loaded one by one.
template <bool kVectors>
class WarpRows {
 public:
  __device__ __forceinline__ WarpRows(const EncodeArgs& args, const LaneTile& tile, RowQueue& queue)
      : args_(args), tile_(tile), queue_(queue), rows_(tile.rows(args)) {
    if constexpr (kVectors)
#pragma unroll
      for (int k = 0; k < kRowsAhead; ++k) send(threadIdx.x / kWarp + k * kTileWarps, k);
  }
  template <class Use>
  __device__ __forceinline__ void each(const Use& use) {
    int slot = 0;
#pragma unroll 1
    for (int row = threadIdx.x / kWarp; row < rows_; row += kTileWarps) {
      Part part;
      if constexpr (kVectors) {
        cuda::wait_for_copy_groups<kRowsAhead - 1>();
        part = queue_.take(slot, tile_.left);
      } else {
        part.template load<false, false>(from(row), tile_.left);
      }
      use(row, part);
      if constexpr (kVectors) {
        send(row + kRowsAhead * kTileWarps, slot);
        slot = slot + 1 < kRowsAhead ? slot + 1 : 0;
      }
    }
  }

 private:
  __device__ __forceinline__ const In* from(int row) const {
    return args_.input + tile_.first_column() +
           outlier::offset_of<kVectors>(args_.rows, tile_.first_row + row, outlier::kMatrixInput);
  }
  __device__ __forceinline__ void send(int row, int slot) {
    if (row < rows_) queue_.send(slot, from(row), tile_.left);
    cuda::end_copy_group();
  }
  const EncodeArgs& args_;
  const LaneTile& tile_;
  RowQueue& queue_;
  const int rows_;
};

template <bool kVectors>
__device__ __forceinline__ void encode_tile(const EncodeArgs& args, const LaneTile& tile,
                                            TileFactors& factors, RowQueue& queue) {
  WarpRows<kVectors> rows(args, tile, queue);  // starts copies that overlap with find_factors()
  find_factors(args, tile.first_row, tile.across * kTileColumns, factors);
  __syncthreads();
  const LaneFactors own(factors, static_cast<int>(threadIdx.x) % kWarp);
  rows.each([&](int row, Part& part) {
    encode_part<kVectors>(args, part, tile.first_row + row, tile, factors.rows[row], own, factors);
  });
}

template <bool kVectors>
__global__ void __launch_bounds__(kTileThreads, kVectors ? kTileBlocks : 1)
    encode_tiles(const __grid_constant__ EncodeArgs args) {
  __shared__ TileFactors factors;
  __shared__ RowQueue queue;
  for (int64_t tile = blockIdx.x; tile < args.tiles; tile += gridDim.x) {
    encode_tile<kVectors>(args, LaneTile(args, tile), factors, queue);
    __syncthreads();
  }
  end_list(args);
}

// --- Launches ----------------------------------------------------------------------------------

int64_t parts_of(const Fields& f) {
  return outlier::rows_of(f.shape) * outlier::column_tiles(f.shape.last());
}

cuda::Prefix book(Scratch& scratch, const Fields& f) {
  return finds_outliers(f) ? cuda::book_prefix(scratch, parts_of(f)) : cuda::Prefix{};
}

std::size_t workspace(const Descriptor& descriptor, const Device&) {
  Scratch scratch;
  book(scratch, descriptor.as<Fields>());
  return scratch.bytes();
}

Status prepare(const Descriptor&, const Device&, State&) {
  PLANQ_TRY(outlier::preload_measure<true>());
  PLANQ_TRY(cuda::preload_prefix());
  PLANQ_TRY(cuda::preload(encode_tiles<false>));
  return cuda::preload(encode_tiles<true>);
}

template <class E>
E* data(const Operands& operands, Operand which) {
  return static_cast<E*>(operands[which].data);
}

Status measure(const Call& call, const cuda::Prefix& prefix, Bound& bound) {
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

EncodeArgs encode_args(const Fields& f, const Operands& operands, const cuda::Prefix& prefix) {
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

Status bind(const Call& call, Bound& bound) {
  const Fields& f = call.fields<Fields>();
  Scratch scratch(call.workspace);
  const cuda::Prefix prefix = book(scratch, f);
  PLANQ_TRY(measure(call, prefix, bound));
  EncodeArgs args = encode_args(f, call.operands, prefix);
  if (finds_outliers(f)) PLANQ_TRY(cuda::launch_prefix(prefix, parts_of(f), args.count, bound));
  constexpr int kPer = kPerVector<In>;
  const bool vectors = args.columns % kPer == 0 && args.rows.rank <= 1 &&
                       outlier::rows_aligned(args.input, args.rows, outlier::kMatrixInput,
                                             sizeof(In), cuda::kVectorBytes) &&
                       outlier::rows_aligned(args.row_codes, args.rows, kCodesOfRow, 1, kPer) &&
                       outlier::rows_aligned(args.column_codes, args.rows, kCodesOfColumn, 1, kPer);
  args.share = outlier::share_rows(args.row_count, args.across,
                                   int64_t{call.device.multiprocessors} * kTileBlocks, kTileRows);
  args.tiles = args.across == 0 ? 0 : args.share.blocks;
  cuda::Grid grid{};
  grid.blocks = std::clamp<int64_t>(args.tiles, 1, kMostBlocks);
  grid.threads = dim3(kTileThreads);
  return cuda::launch(vectors ? encode_tiles<true> : encode_tiles<false>, grid, args, bound);
}

constexpr Kernel kKernels[] = {{.op = "double_quantize",
                                .body = "tiles",
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
