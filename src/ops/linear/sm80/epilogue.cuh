// From the sums of a tile in shared memory to outputs in global memory, for all kernels of sm80.
// Rows of a tile are rows of the input, columns of a tile are rows of the weight.
#pragma once

#include <cstdint>

#include "ops/linear/epilogue.cuh"
#include "ops/linear/sm80/addend.cuh"
#include "ops/linear/sm80/args.h"

namespace planq::linear {

// How the sums of a tile lie in shared memory. Warps that share the same outputs have a plane each;
// the planes are added up here. Groups of eight columns are swizzled by row, so that lanes which
// access neighbouring rows do not meet in a bank.
struct SumShape {
  std::int32_t columns;  // a power of two, at least 16
  std::int32_t plane;    // sums from a plane to the next
  std::int32_t planes, threads;

  PLANQ_HD constexpr int place(int row, int column) const {
    return row * columns + (column ^ (row & (columns >= 32 ? 3 : 1)) * 8);
  }
};
// The outputs of a block.
struct OutputTile {
  std::int64_t row, column;    // the first ones
  std::int32_t rows, columns;  // those inside the gemm
};

__device__ __forceinline__ void four_sums(const SumShape& shape, const std::int32_t* sums, int row,
                                          int column, std::int32_t (&total)[4]) {
  const auto* from = sums + shape.place(row, column);
  std::uint32_t each[4] = {};  // unsigned, because sums wrap
#pragma unroll 1
  for (int i = 0; i < shape.planes; ++i) {
    const auto four = *reinterpret_cast<const uint4*>(from + i * shape.plane);
    each[0] += four.x;
    each[1] += four.y;
    each[2] += four.z;
    each[3] += four.w;
  }
  memcpy(total, each, sizeof total);
}

// Calls visit(row, sums) for the rows of a tile. A thread has the same four columns in each of its
// rows.
template <class Visit>
__device__ __forceinline__ void each_row(const SumShape& shape, const OutputTile& tile,
                                         const std::int32_t* sums, const Visit& visit) {
  const int across = shape.columns / 4, column = static_cast<int>(threadIdx.x) % across * 4;
#pragma unroll 1
  for (int row = static_cast<int>(threadIdx.x) / across; row < tile.rows;
       row += shape.threads / across) {
    std::int32_t four[4];
    four_sums(shape, sums, row, column, four);
    visit(tile.row + row, four);
  }
}

template <class T>
__device__ __forceinline__ void store_integers(const Gemm& gemm, const SumShape& shape,
                                               const OutputTile& tile, const std::int32_t* sums,
                                               std::int64_t column, int count, bool vectors) {
  each_row(shape, tile, sums, [&](std::int64_t row, const std::int32_t (&four)[4]) {
    T each[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) each[i] = integer_output<T>(four[i]);
    Four<T> out;
    memcpy(&out, each, sizeof out);
    auto* to = reinterpret_cast<T*>(gemm.output) + row * gemm.output_row + column;
    store_four(to, out, count, vectors);
  });
}

// Stores outputs that have scales. C: the compute type of the output.
template <class C>
__device__ __forceinline__ void store_scaled(const Gemm& gemm, const SumShape& shape,
                                             const OutputTile& tile, const std::int32_t* sums,
                                             std::int64_t column, int count, bool vectors) {
  const Epilogue& e = gemm.epilogue;
  ColumnTerm<C> columns[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) columns[i] = column_term<C>(e, column + (i < count ? i : 0));
  each_row(shape, tile, sums, [&](std::int64_t row, const std::int32_t (&four)[4]) {
    const RowTerm<C> of_row = row_term<C>(e, row);
    C values[4];
#pragma unroll
    for (int i = 0; i < 4; ++i)
      values[i] = finish<C>(four[i], of_row, columns[i], e,
                            residual_at<C>(e, row, column + (i < count ? i : 0)));
    store_values<C>(gemm, row * gemm.output_row + column, values, count, vectors);
  });
}

// The same, or what an addend has in its place.
template <class Addend, class C, int kRowsAtOnce>
__device__ __forceinline__ void store_scaled(const Gemm& gemm, const SumShape& shape,
                                             const OutputTile& tile, const std::int32_t* sums,
                                             std::int64_t column, int count, bool vectors) {
  if constexpr (Addend::kAdds)
    Addend::template store<C, kRowsAtOnce>(gemm, tile, shape, sums, column, count, vectors);
  else
    store_scaled<C>(gemm, shape, tile, sums, column, count, vectors);
}

// Stores a tile of integer sums. `gemm`: one of a batch, as Gemm::at gives it. `vectors`: four
// outputs are an aligned vector. kRowsAtOnce: rows that a thread stores at once if there is an
// addend.
template <class Addend, int kRowsAtOnce = 4>
__device__ __forceinline__ void store_tile(const Gemm& gemm, const OutputTile& tile,
                                           const SumShape& shape, const std::int32_t* sums,
                                           bool vectors) {
  const int first = static_cast<int>(threadIdx.x) % (shape.columns / 4) * 4;
  const int count = tile.columns - first;
  if (count <= 0) return;
  const std::int64_t column = tile.column + first;
  if (gemm.output_dtype == DType::Int32)
    return store_integers<std::int32_t>(gemm, shape, tile, sums, column, count, vectors);
  if (gemm.output_dtype == DType::Int8)
    return store_integers<std::int8_t>(gemm, shape, tile, sums, column, count, vectors);
  if (gemm.output_dtype == DType::Float64)
    return store_scaled<Addend, double, kRowsAtOnce>(gemm, shape, tile, sums, column, count,
                                                     vectors);
  return store_scaled<Addend, float, kRowsAtOnce>(gemm, shape, tile, sums, column, count, vectors);
}

// Stores a tile of floating sums. They lie in one plane, as the bits of float32.
__device__ __forceinline__ void store_float_tile(const Gemm& gemm, const OutputTile& tile,
                                                 const SumShape& shape, const std::int32_t* sums,
                                                 bool vectors) {
  const int first = static_cast<int>(threadIdx.x) % (shape.columns / 4) * 4;
  const int count = tile.columns - first;
  if (count <= 0) return;
  const std::int64_t column = tile.column + first;
  FloatColumn columns[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) columns[i] = FloatColumn(gemm, column + (i < count ? i : 0));
  each_row(shape, tile, sums, [&](std::int64_t row, const std::int32_t (&four)[4]) {
    const float of_row = row_scale(gemm, row);
    float values[4];
#pragma unroll
    for (int i = 0; i < 4; ++i)
      values[i] = finished(gemm, row, column + (i < count ? i : 0), __int_as_float(four[i]), of_row,
                           columns[i]);
    store_values<float>(gemm, row * gemm.output_row + column, values, count, vectors);
  });
}

}  // namespace planq::linear
