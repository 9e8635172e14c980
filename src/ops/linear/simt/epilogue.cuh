// The epilogue of the SIMT kernels (simt/gemm.cuh): a thread or a warp has one sum in float32,
// finds the output that it belongs to, and stores it there.
#pragma once

#include "ops/linear/epilogue.cuh"

namespace planq::linear {

// The row and column of output number `index`, and the gemm of the batch that it belongs to.
// Outputs are numbered gemm by gemm, row by row.
struct OutputPlace {
  Gemm gemm;
  std::int64_t row, column;

  __device__ __forceinline__ OutputPlace(const Gemm& whole, std::int64_t index)
      : gemm(whole.at(index / (whole.m * whole.n))),
        row(index / whole.n % whole.m),
        column(index % whole.n) {}
};

template <class T>
__device__ __forceinline__ void store_number(const Gemm& gemm, std::int64_t at, float y) {
  const float canonical = math::is_nan(y) ? math::canonical_nan<float>() : y;
  reinterpret_cast<T*>(gemm.output)[at] = math::narrow<T>(canonical);
}

// Rounds y to the output's type. That is never float64 here.
__device__ __forceinline__ void store_output(const Gemm& gemm, std::int64_t row,
                                             std::int64_t column, float y) {
  const std::int64_t at = row * gemm.output_row + column;
  if (gemm.output_dtype == DType::Float16) return store_number<math::Half>(gemm, at, y);
  if (gemm.output_dtype == DType::BFloat16) return store_number<math::Bfloat16>(gemm, at, y);
  store_number<float>(gemm, at, y);
}

}  // namespace planq::linear
