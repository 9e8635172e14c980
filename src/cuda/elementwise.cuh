// Elementwise kernels over any strides and scopes. An operator supplies what happens to a vector of
// elements and to a single one; this header finds them, and the parameters that they share.
//
// Vectors: every row is whole vectors and every operand is aligned to them. Long rows are cut into
// tiles, a block each, so that what a row has in common is found once for many vectors. Short rows
// share blocks. In columns each element of a vector has its own parameters, and a thread goes down
// many rows with them. Singles: everything else, a warp for a stretch of a row.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "core/elementwise.h"
#include "cuda/codes.cuh"
#include "cuda/index.cuh"
#include "cuda/launch.cuh"
#include "math/affine.h"

namespace planq::cuda {

inline constexpr int kElementThreads = 256;
// Vectors that a thread has in flight: of tiles, of small tensors' tiles, of short rows, of
// columns.
inline constexpr int kTileVectors = 4, kSmallTileVectors = 1, kShortVectors = 2, kColumnVectors = 4;
// Rows of at least so many vectors are cut into tiles.
inline constexpr std::int64_t kLongRow = 128;
// Blocks that keep every multiprocessor busy.
inline constexpr std::int64_t kManyBlocks = 1024;
// Elements of a row that a warp takes in the kernel for single elements.
inline constexpr std::int64_t kStretch = 512;

// Rows of fewer than 2^31, with multiplications in the place of divisions.
struct RowIndex {
  struct Axis {
    Divider extent, divisor;
    std::int64_t stride[kElementOperands];
  };
  std::int32_t rank = 0;
  Axis axes[kMaxRank];

  RowIndex() = default;
  explicit RowIndex(const SpaceOf<kElementOperands>& rows) : rank(rows.rank) {
    for (int i = 0; i < rank; ++i) {
      axes[i].extent = Divider(static_cast<std::uint32_t>(rows.axes[i].extent));
      axes[i].divisor =
          Divider(static_cast<std::uint32_t>(std::min(rows.axes[i].divisor, kMaxIndex)));
      std::copy_n(rows.axes[i].stride.begin(), kElementOperands, axes[i].stride);
    }
  }

  __device__ __forceinline__ ElementOffsets offsets(std::uint32_t row) const {
    ElementOffsets result{};
    if (rank <= 1) {
      if (rank == 0) return result;
      const std::uint32_t group = axes[0].divisor.quotient(row);
#pragma unroll
      for (int k = 0; k < kElementOperands; ++k)
        result.at[k] = (k < kElementTensors ? row : group) * axes[0].stride[k];
      return result;
    }
#pragma unroll 1
    for (int i = rank - 1; i >= 0; --i) {
      const std::uint32_t rest = i > 0 ? axes[i].extent.quotient(row) : 0;
      const std::uint32_t position = row - rest * axes[i].extent.divisor;
      const std::uint32_t group = axes[i].divisor.quotient(position);
#pragma unroll
      for (int k = 0; k < kElementOperands; ++k)
        result.at[k] += (k < kElementTensors ? position : group) * axes[i].stride[k];
      row = rest;
    }
    return result;
  }
};

// Where parameters come from.
struct GivenParameters {
  const void* scale = nullptr;
  const void* zero_point = nullptr;  // null: there are none
  DType scale_dtype = DType::Float32, zero_point_dtype = DType::Int32;
  NibbleOrder order = NibbleOrder::LowFirst;

  template <class C>
  __device__ __forceinline__ C scale_at(std::int64_t index) const {
    switch (scale_dtype) {
      case DType::Float16:
        return static_cast<C>(
            math::widen(load_single(static_cast<const math::Half*>(scale) + index)));
      case DType::BFloat16:
        return static_cast<C>(
            math::widen(load_single(static_cast<const math::Bfloat16*>(scale) + index)));
      case DType::Float32:
        return static_cast<C>(load_single(static_cast<const float*>(scale) + index));
      default:
        return static_cast<C>(load_single(static_cast<const double*>(scale) + index));
    }
  }
  __device__ __forceinline__ std::int32_t zero_point_at(std::int64_t index) const {
    if (!zero_point) return 0;
    if (zero_point_dtype == DType::Int32)
      return load_single(static_cast<const std::int32_t*>(zero_point) + index);
    return math::load_integer(zero_point, index, zero_point_dtype, order);
  }
};

// What a kernel gets: the operator's own arguments, and the layout.
template <class Op>
struct ElementArgs {
  typename Op::Args op;
  GivenParameters given;
  RowIndex rows;
  Divider row_vectors;        // vectors in a row
  Divider vector_divisor;     // vectors that share a parameter
  Divider tiles;              // in a row
  std::uint32_t vectors = 0;  // in a row, which may be none before a tail
  std::uint32_t count = 0;    // of vectors, or of threads' shares of columns
  std::uint32_t row_count = 0, share_rows = 1;
  // Singles: rows without the limit to 31 bits.
  SpaceOf<kElementOperands> all_rows;
  std::int64_t length = 1, divisor = 1, step = 0, stretches = 1, stretch_count = 0;
  int tail = 0;  // elements after the vectors of a single row that has one parameter
};

// One vector, or one element.
struct ElementPlace {
  ElementOffsets at;    // of the first element, in each tensor; of its parameters
  std::int64_t column;  // of the first element in its row
  std::int64_t index;   // of the first element in the tensor

  __device__ __forceinline__ void advance(std::int64_t elements) {
    column += elements;
    index += elements;
#pragma unroll
    for (int k = 0; k < kElementTensors; ++k) at.at[k] += elements;
  }
  __device__ __forceinline__ void move_parameters(std::int64_t count) {
    at.at[kElementScale] += count;
    at.at[kElementZeroPoint] += count;
  }
};

template <class Op>
__device__ __forceinline__ ElementPlace row_place(const ElementArgs<Op>& args, std::uint32_t row) {
  ElementPlace place;
  place.at = args.rows.offsets(row);
  place.column = 0;
  place.index = row * args.length;
  return place;
}

// Calls use() with a true constant for an operator that divides by DIVIDE, where one that
// multiplies gets a false one: one decision for all vectors of a thread.
template <class Op, class Use>
__device__ __forceinline__ void by_rule(const ElementArgs<Op>& args, const Use& use) {
  if constexpr (Op::kHasRule) {
    if (args.op.recipe.quotient == Quotient::Divide)
      use(std::true_type{});
    else
      use(std::false_type{});
  } else {
    use(std::false_type{});
  }
}

template <class Op>
__device__ __forceinline__ void run_tail(const ElementArgs<Op>& args) {
  const int first = static_cast<int>(threadIdx.x) * Op::kUnit;
  if (first >= args.tail || blockIdx.x != 0) return;
  const auto place_of = [&](int j) {
    ElementPlace place{};
    place.advance(args.length - args.tail + j);
    return place;
  };
  Op::run_single(args.op, args.given, place_of, first, min(args.tail - first, Op::kUnit));
}

// A block for a tile of a row.
template <class Op, int kVectors>
__global__ void __launch_bounds__(kElementThreads)
    row_tiles(const __grid_constant__ ElementArgs<Op> args) {
  const std::uint32_t row = args.tiles.quotient(blockIdx.x);
  const std::uint32_t first =
      (blockIdx.x - row * args.tiles.divisor) * blockDim.x * kVectors + threadIdx.x;
  ElementPlace place = row_place(args, row);
  place.advance(std::int64_t{first} * Op::kVector);
  const auto place_of = [&](int i) {
    ElementPlace each = place;
    each.advance(static_cast<int>(i * blockDim.x) * Op::kVector);
    return each;
  };
  typename Op::Vector vectors[kVectors];
#pragma unroll
  for (int i = 0; i < kVectors; ++i)
    if (first + i * blockDim.x < args.vectors) vectors[i] = Op::load(args.op, place_of(i));
  typename Op::Parameters parameters;
  if (args.step == 0) parameters = Op::parameters(args.op, args.given, place);
  by_rule(args, [&](auto divides) {
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
      const std::uint32_t vector = first + i * blockDim.x;
      if (vector >= args.vectors) break;
      ElementPlace each = place_of(i);
      if (args.step != 0) {
        each.move_parameters(args.vector_divisor.quotient(vector));
        parameters = Op::parameters(args.op, args.given, each);
      }
      Op::template run<divides>(args.op, vectors[i], each,
                                [&](int) -> const auto& { return parameters; });
    }
  });
  run_tail(args);
}

// Short rows, one after another; one parameter for each vector.
template <class Op>
__global__ void __launch_bounds__(kElementThreads)
    short_rows(const __grid_constant__ ElementArgs<Op> args) {
  const std::uint32_t first = blockIdx.x * (kElementThreads * kShortVectors) + threadIdx.x;
  ElementPlace places[kShortVectors];
  typename Op::Vector vectors[kShortVectors];
#pragma unroll
  for (int i = 0; i < kShortVectors; ++i) {
    const std::uint32_t index = first + i * kElementThreads;
    if (index >= args.count) break;
    const std::uint32_t row = args.row_vectors.quotient(index);
    const std::uint32_t vector = index - row * args.row_vectors.divisor;
    places[i] = row_place(args, row);
    places[i].advance(static_cast<int>(vector) * Op::kVector);
    if (args.step != 0) places[i].move_parameters(args.vector_divisor.quotient(vector));
    vectors[i] = Op::load(args.op, places[i]);
  }
  typename Op::Parameters parameters;
  by_rule(args, [&](auto divides) {
#pragma unroll
    for (int i = 0; i < kShortVectors; ++i) {
      if (first + i * kElementThreads >= args.count) break;
      parameters = Op::parameters(args.op, args.given, places[i]);
      Op::template run<divides>(args.op, vectors[i], places[i],
                                [&](int) -> const auto& { return parameters; });
    }
  });
}

// A parameter for each element: a thread takes share_rows rows of its columns.
template <class Op>
__global__ void __launch_bounds__(kElementThreads)
    column_vectors(const __grid_constant__ ElementArgs<Op> args) {
  const std::uint32_t index = blockIdx.x * kElementThreads + threadIdx.x;
  if (index >= args.count) return;
  const std::uint32_t share = args.row_vectors.quotient(index);
  const std::uint32_t vector = index - share * args.row_vectors.divisor;
  const std::uint32_t last = min((share + 1) * args.share_rows, args.row_count);
  typename Op::Parameters parameters[Op::kVector];
  std::int64_t held[2] = {-1, -1};
  by_rule(args, [&](auto divides) {
#pragma unroll 1
    for (std::uint32_t row = share * args.share_rows; row < last; row += kColumnVectors) {
      ElementPlace places[kColumnVectors];
      typename Op::Vector vectors[kColumnVectors];
#pragma unroll
      for (int i = 0; i < kColumnVectors; ++i) {
        if (row + i >= last) break;
        places[i] = row_place(args, row + i);
        places[i].advance(static_cast<int>(vector) * Op::kVector);
        places[i].move_parameters(places[i].column);
        vectors[i] = Op::load(args.op, places[i]);
      }
#pragma unroll
      for (int i = 0; i < kColumnVectors; ++i) {
        if (row + i >= last) break;
        const std::int64_t* of = places[i].at.at + kElementScale;
        if (of[0] != held[0] || of[1] != held[1]) {
          held[0] = of[0];
          held[1] = of[1];
#pragma unroll
          for (int j = 0; j < Op::kVector; ++j) {
            ElementPlace each = places[i];
            each.move_parameters(j);
            parameters[j] = Op::parameters(args.op, args.given, each);
          }
        }
        Op::template run<divides>(args.op, vectors[i], places[i],
                                  [&](int j) -> const auto& { return parameters[j]; });
      }
    }
  });
}

// Any layout: a warp for a stretch of a row, whose lanes take units of elements in turn. A unit is
// two elements where two codes share a byte of the output.
template <class Op>
__global__ void __launch_bounds__(kElementThreads)
    single_elements(const __grid_constant__ ElementArgs<Op> args) {
  const std::int64_t warps = std::int64_t{gridDim.x} * (kElementThreads / kWarp);
  std::int64_t warp = std::int64_t{blockIdx.x} * (kElementThreads / kWarp) + threadIdx.x / kWarp;
  for (; warp < args.stretch_count; warp += warps) {
    const std::int64_t row = args.stretches == 1 ? warp : warp / args.stretches;
    const std::int64_t start = (warp - row * args.stretches) * kStretch;
    const ElementOffsets at = args.all_rows.offsets(row);
    const std::int64_t group = args.step == 0 ? 0 : start / args.divisor;
    const std::int64_t past = args.step == 0 ? 0 : start - group * args.divisor;
    const int count = static_cast<int>(min(args.length - start, kStretch));
    for (int i = threadIdx.x % kWarp * Op::kUnit; i < count; i += kWarp * Op::kUnit) {
      const auto place_of = [&](int j) {
        ElementPlace place;
        place.column = start + j;
        place.index = row * args.length + place.column;
#pragma unroll
        for (int k = 0; k < kElementOperands; ++k)
          place.at.at[k] = at.at[k] + (k < kElementTensors ? place.column : 0);
        if (args.step != 0) {
          // At most kStretch groups lie between.
          const std::int64_t further =
              group + (args.divisor > kMaxIndex - kStretch
                           ? past + j >= args.divisor
                           : args.vector_divisor.quotient(static_cast<std::uint32_t>(past + j)));
          place.at.at[kElementScale] += further;
          place.at.at[kElementZeroPoint] += further;
        }
        return place;
      };
      Op::run_single(args.op, args.given, place_of, i, min(count - i, Op::kUnit));
    }
  }
}

// --- Launch ------------------------------------------------------------------------------------

template <class Op>
bool takes_vectors(const ElementLayout& layout, const std::array<ElementOperand, 5>& operands) {
  constexpr std::array<int, kElementTensors> kBytes = Op::kVectorBytes;
  const bool one_row = layout.rows.rank == 0 && layout.step == 0;
  if (layout.length % Op::kVector != 0 && !one_row) return false;
  const bool columns = layout.step != 0 && layout.divisor == 1;
  if (layout.step != 0 && !columns && layout.divisor % Op::kVector != 0) return false;
  const std::int64_t rows = layout.rows.size();
  if (rows >= kMaxIndex || layout.elements() / Op::kVector >= kMaxIndex - (1 << 20)) return false;
  for (int k = 0; k < kElementTensors; ++k) {
    if (!operands[k].view) continue;
    if (reinterpret_cast<std::uintptr_t>(operands[k].view->data) % kBytes[k] != 0) return false;
    for (int i = 0; i < layout.rows.rank; ++i)
      if (layout.rows.axes[i].stride[k] % Op::kVector != 0) return false;
  }
  return true;
}

// Rows that every thread goes down: many, so that parameters are read once for all of them, but few
// enough that all multiprocessors have work.
template <class Op>
Status launch_columns(ElementArgs<Op>& args, Grid& grid, void* stream) {
  const std::int64_t columns = args.row_vectors.divisor;
  const auto blocks_of = [&](std::int64_t share) {
    const std::int64_t shares = (args.row_count + share - 1) / share;
    return (shares * columns + kElementThreads - 1) / kElementThreads;
  };
  std::int64_t share = 64;
  while (share > kColumnVectors && blocks_of(share) < kManyBlocks) share /= 2;
  args.share_rows = static_cast<std::uint32_t>(share);
  args.count = static_cast<std::uint32_t>((args.row_count + share - 1) / share * columns);
  grid.blocks = blocks_of(share);
  return launch(column_vectors<Op>, grid, args, stream);
}

// Tiles of equal size, as few as fit a row.
template <class Op>
Status launch_tiles(ElementArgs<Op>& args, Grid& grid, void* stream) {
  const std::int64_t row = args.row_vectors.divisor;
  const bool small = std::int64_t{args.count} < kManyBlocks * kElementThreads * kTileVectors / 2;
  const int vectors = small ? kSmallTileVectors : kTileVectors;
  const std::int64_t tiles = (row + kElementThreads * vectors - 1) / (kElementThreads * vectors);
  const std::int64_t threads = (row + tiles * vectors - 1) / (tiles * vectors);
  grid.threads = dim3(static_cast<unsigned>((threads + kWarp - 1) / kWarp * kWarp));
  grid.blocks = std::int64_t{args.row_count} * tiles;
  args.tiles = Divider(static_cast<std::uint32_t>(tiles));
  return small ? launch(row_tiles<Op, kSmallTileVectors>, grid, args, stream)
               : launch(row_tiles<Op, kTileVectors>, grid, args, stream);
}

template <class Op>
Status launch_elements(const typename Op::Args& op, const GivenParameters& given,
                       const Shape& shape, const Scope& scope,
                       const std::array<ElementOperand, 5>& operands, void* stream,
                       bool whole = false) {
  const ElementLayout layout = element_layout(shape, scope, operands, whole);
  if (layout.elements() == 0) return Status::success();
  ElementArgs<Op> args;
  args.op = op;
  args.given = given;
  args.length = layout.length;
  args.divisor = layout.divisor;
  args.step = layout.step;
  Grid grid;
  grid.threads = dim3(kElementThreads);
  if (!takes_vectors<Op>(layout, operands)) {
    args.all_rows = layout.rows;
    args.stretches = (layout.length + kStretch - 1) / kStretch;
    args.vector_divisor = Divider(static_cast<std::uint32_t>(std::min(layout.divisor, kMaxIndex)));
    args.stretch_count = layout.rows.size() * args.stretches;
    grid.blocks = std::min<std::int64_t>((args.stretch_count + 7) / 8, 1 << 30);
    return launch(single_elements<Op>, grid, args, stream);
  }
  const std::int64_t row_vectors = layout.length / Op::kVector, rows = layout.rows.size();
  args.rows = RowIndex(layout.rows);
  args.row_vectors = Divider(static_cast<std::uint32_t>(std::max<std::int64_t>(row_vectors, 1)));
  args.vectors = static_cast<std::uint32_t>(row_vectors);
  args.row_count = static_cast<std::uint32_t>(rows);
  args.count = static_cast<std::uint32_t>(rows * row_vectors);
  if (layout.step != 0 && layout.divisor == 1) return launch_columns(args, grid, stream);
  args.vector_divisor = Divider(static_cast<std::uint32_t>(
      std::min(std::max<std::int64_t>(layout.divisor / Op::kVector, 1), kMaxIndex)));
  if (row_vectors >= kLongRow || rows == 1) {
    args.tail = static_cast<int>(layout.length % Op::kVector);
    return launch_tiles(args, grid, stream);
  }
  constexpr int kPerBlock = kElementThreads * kShortVectors;
  grid.blocks = (std::int64_t{args.count} + kPerBlock - 1) / kPerBlock;
  return launch(short_rows<Op>, grid, args, stream);
}

template <class Op>
Status preload_elements() {
  PLANQ_TRY((preload(row_tiles<Op, kTileVectors>)));
  PLANQ_TRY((preload(row_tiles<Op, kSmallTileVectors>)));
  PLANQ_TRY(preload(short_rows<Op>));
  PLANQ_TRY(preload(column_vectors<Op>));
  return preload(single_elements<Op>);
}

}  // namespace planq::cuda
