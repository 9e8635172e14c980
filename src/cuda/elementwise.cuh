// Elementwise kernels over any strides and scopes. An operator supplies what happens to a vector of
// elements and to a single one; this header finds them, and the parameters that they share.
//
// Vectors: every row is whole vectors and every operand is aligned to them. Either the elements of
// a vector share a parameter, or each has its own (columns), in which case a thread takes several
// rows of its columns, so as to read the parameters once. Singles: everything else, a warp for a
// stretch of a row.
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
// Vectors that a thread of a shared-parameter kernel has in flight, and rows of a column kernel.
inline constexpr int kElementVectors = 2, kColumnRows = 4;
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
  Divider row_vectors;      // vectors in a row
  Divider vector_divisor;   // vectors that share a parameter
  std::uint32_t count = 0;  // of vectors, or of threads' shares of columns
  std::uint32_t row_count = 0;
  // Singles: rows without the limit to 31 bits.
  SpaceOf<kElementOperands> all_rows;
  std::int64_t length = 1, divisor = 1, step = 0, stretches = 1, stretch_count = 0;
  int tail = 0;  // elements after the vectors of a single row that has one parameter
};

// One vector, or one stretch of elements.
struct ElementPlace {
  ElementOffsets at;    // of the first element, in each tensor; of its parameters
  std::int64_t column;  // of the first element in its row
  std::int64_t index;   // of the first element in the tensor
};

template <class Op>
__device__ __forceinline__ ElementPlace vector_place(const ElementArgs<Op>& args, std::uint32_t row,
                                                     std::uint32_t vector) {
  ElementPlace place;
  place.at = args.rows.offsets(row);
  place.column = std::int64_t{vector} * Op::kVector;
  place.index = (std::int64_t{row} * args.row_vectors.divisor + vector) * Op::kVector;
#pragma unroll
  for (int k = 0; k < kElementTensors; ++k) place.at.at[k] += place.column;
  return place;
}

// One parameter for each vector.
template <class Op>
__global__ void __launch_bounds__(kElementThreads)
    shared_vectors(const __grid_constant__ ElementArgs<Op> args) {
  const std::uint32_t first = blockIdx.x * (kElementThreads * kElementVectors) + threadIdx.x;
  ElementPlace places[kElementVectors];
  typename Op::Vector vectors[kElementVectors];
#pragma unroll
  for (int i = 0; i < kElementVectors; ++i) {
    const std::uint32_t index = first + i * kElementThreads;
    if (index >= args.count) break;
    const std::uint32_t row = args.rows.rank == 0 ? 0 : args.row_vectors.quotient(index);
    const std::uint32_t vector = index - row * args.row_vectors.divisor;
    places[i] = vector_place(args, row, vector);
    if (args.step != 0) {
      const std::uint32_t group = args.vector_divisor.quotient(vector);
      places[i].at.at[kElementScale] += group;
      places[i].at.at[kElementZeroPoint] += group;
    }
    vectors[i] = Op::load(args.op, places[i]);
  }
  typename Op::Parameters parameters;
#pragma unroll
  for (int i = 0; i < kElementVectors; ++i) {
    if (first + i * kElementThreads >= args.count) break;
    if (i == 0 || args.step != 0 || args.rows.rank != 0)
      parameters = Op::parameters(args.op, args.given, places[i]);
    Op::run(args.op, vectors[i], places[i], [&](int) -> const auto& { return parameters; });
  }
  const int single = static_cast<int>(first) * Op::kUnit;
  if (single < args.tail && blockIdx.x == 0) {
    const auto place_of = [&](int j) {
      ElementPlace place{};
      place.column = place.index = args.length - args.tail + j;
#pragma unroll
      for (int k = 0; k < kElementTensors; ++k) place.at.at[k] = place.column;
      return place;
    };
    Op::run_single(args.op, args.given, place_of, single, min(args.tail - single, Op::kUnit));
  }
}

// A parameter for each element: a thread takes kColumnRows rows of its columns.
template <class Op>
__global__ void __launch_bounds__(kElementThreads)
    column_vectors(const __grid_constant__ ElementArgs<Op> args) {
  const std::uint32_t index = blockIdx.x * kElementThreads + threadIdx.x;
  if (index >= args.count) return;
  const std::uint32_t share = args.row_vectors.quotient(index);
  const std::uint32_t vector = index - share * args.row_vectors.divisor;
  ElementPlace places[kColumnRows];
  typename Op::Vector vectors[kColumnRows];
#pragma unroll
  for (int i = 0; i < kColumnRows; ++i) {
    const std::uint32_t row = share * kColumnRows + i;
    if (row >= args.row_count) break;
    places[i] = vector_place(args, row, vector);
    places[i].at.at[kElementScale] += places[i].column;
    places[i].at.at[kElementZeroPoint] += places[i].column;
    vectors[i] = Op::load(args.op, places[i]);
  }
  typename Op::Parameters parameters[Op::kVector];
  std::int64_t held = -1;
#pragma unroll
  for (int i = 0; i < kColumnRows; ++i) {
    if (share * kColumnRows + i >= args.row_count) break;
    if (i == 0 || places[i].at.at[kElementScale] != held) {
      held = places[i].at.at[kElementScale];
#pragma unroll
      for (int j = 0; j < Op::kVector; ++j) {
        ElementPlace each = places[i];
        each.at.at[kElementScale] += j;
        each.at.at[kElementZeroPoint] += j;
        parameters[j] = Op::parameters(args.op, args.given, each);
      }
    }
    Op::run(args.op, vectors[i], places[i], [&](int j) -> const auto& { return parameters[j]; });
  }
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
  args.tail = static_cast<int>(layout.length % Op::kVector);
  args.row_count = static_cast<std::uint32_t>(rows);
  if (layout.step != 0 && layout.divisor == 1) {
    args.count = static_cast<std::uint32_t>((rows + kColumnRows - 1) / kColumnRows * row_vectors);
    grid.blocks = (std::int64_t{args.count} + kElementThreads - 1) / kElementThreads;
    return launch(column_vectors<Op>, grid, args, stream);
  }
  args.count = static_cast<std::uint32_t>(rows * row_vectors);
  args.vector_divisor = Divider(static_cast<std::uint32_t>(
      std::min(std::max<std::int64_t>(layout.divisor / Op::kVector, 1), kMaxIndex)));
  constexpr int kPerBlock = kElementThreads * kElementVectors;
  grid.blocks = std::max<std::int64_t>((std::int64_t{args.count} + kPerBlock - 1) / kPerBlock, 1);
  return launch(shared_vectors<Op>, grid, args, stream);
}

template <class Op>
Status preload_elements() {
  PLANQ_TRY(preload(shared_vectors<Op>));
  PLANQ_TRY(preload(column_vectors<Op>));
  return preload(single_elements<Op>);
}

}  // namespace planq::cuda
