// Outliers as the addend of the sm80 kernels (sm80/addend.cuh): sums meet the scales of their rows,
// then outlier columns are added, one fma each. The kernel that gathers codes and values
// (gather.cu) may still run when the gemm begins, so the epilogue calls cuda::wait_for_previous()
// first.
#pragma once

#include <cstdint>

#include "cuda/launch.cuh"
#include "ops/linear/sm80/epilogue.cuh"

namespace planq::linear_llm_int8 {

using namespace linear;

// Loads the codes of four neighbouring columns at a place of the list. `column` is a multiple of
// four. Rows of codes are padded.
template <class C>
__device__ __forceinline__ void outlier_codes(const Outliers& outliers, std::int64_t place,
                                              std::int64_t column, C (&codes)[4]) {
  const auto four =
      *reinterpret_cast<const char4*>(outliers.codes + place * outliers.pitch + column);
  codes[0] = static_cast<C>(static_cast<signed char>(four.x));
  codes[1] = static_cast<C>(static_cast<signed char>(four.y));
  codes[2] = static_cast<C>(static_cast<signed char>(four.z));
  codes[3] = static_cast<C>(static_cast<signed char>(four.w));
}

// Adds all outlier columns, in their order, to four neighbouring sums of several rows.
template <class C, int kRows>
__device__ __forceinline__ void add_outliers(const Outliers& outliers,
                                             const std::int64_t (&rows)[kRows], std::int64_t column,
                                             C (&sums)[kRows][4]) {
  const auto count = static_cast<int>(outliers.listed());
  const C* values[kRows];
#pragma unroll
  for (int r = 0; r < kRows; ++r)
    values[r] = static_cast<const C*>(outliers.values) + rows[r] * outliers.row;
#pragma unroll 2
  for (int place = 0; place < count; ++place) {
    C codes[4];
    outlier_codes(outliers, place, column, codes);
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const C value = values[r][place];
#pragma unroll
      for (int i = 0; i < 4; ++i) sums[r][i] = math::fused(value, codes[i], sums[r][i]);
    }
  }
}

// Stores the outputs of a thread's four columns. A thread has up to kMostRows rows at a time, so
// that a code is loaded once for all of them.
template <class C, int kMostRows>
__device__ __forceinline__ void store_with_outliers(const Gemm& gemm, const OutputTile& tile,
                                                    const SumShape& shape, const std::int32_t* sums,
                                                    std::int64_t column, int count, bool vectors) {
  constexpr int kRows = sizeof(C) == 4 || kMostRows == 1 ? kMostRows : kMostRows / 2;
  const Epilogue& e = gemm.epilogue;
  const int across = shape.columns / 4, first = static_cast<int>(threadIdx.x) % across * 4;
  const int step = shape.threads / across;
  cuda::wait_for_previous();
  ColumnTerm<C> columns[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) columns[i] = column_term<C>(e, column + (i < count ? i : 0));
#pragma unroll 1
  for (int row = static_cast<int>(threadIdx.x) / across; row < tile.rows; row += kRows * step) {
    C t[kRows][4];
    std::int64_t rows[kRows];
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      // Rows beyond the tile are its last one again.
      const int own = min(row + r * step, tile.rows - 1);
      std::int32_t four[4];
      four_sums(shape, sums, own, first, four);
      rows[r] = tile.row + own;
      const C scale = row_term<C>(e, rows[r]).scale;
#pragma unroll
      for (int i = 0; i < 4; ++i) t[r][i] = static_cast<C>(four[i]) * scale;
    }
    add_outliers<C>(e.outliers, rows, column, t);
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      if (row + r * step >= tile.rows) break;
      C values[4];
#pragma unroll
      for (int i = 0; i < 4; ++i)
        values[i] = finish_listed<C>(t[r][i], columns[i], e,
                                     residual_at<C>(e, rows[r], column + (i < count ? i : 0)));
      store_values<C>(gemm, rows[r] * gemm.output_row + column, values, count, vectors);
    }
  }
}

struct OutlierAddend {
  static constexpr bool kAdds = true;

  template <class C, int kRowsAtOnce>
  static __device__ __forceinline__ void store(const Gemm& gemm, const OutputTile& tile,
                                               const SumShape& shape, const std::int32_t* sums,
                                               std::int64_t column, int count, bool vectors) {
    store_with_outliers<C, kRowsAtOnce>(gemm, tile, shape, sums, column, count, vectors);
  }
};

}  // namespace planq::linear_llm_int8
