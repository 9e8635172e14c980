// Outputs in float32, one a thread or a warp: where each belongs, and how it is stored.
#pragma once

#include "ops/affine/affine.cuh"
#include "ops/linear/gemm.h"

namespace planq::linear {

// An output's place, and the product of the batch that it belongs to.
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

// Rounded to the output's type, which is not float64.
__device__ __forceinline__ void store_output(const Gemm& gemm, std::int64_t row,
                                             std::int64_t column, float y) {
  const std::int64_t at = row * gemm.output_row + column;
  if (gemm.output_dtype == DType::Float16) return store_number<math::Half>(gemm, at, y);
  if (gemm.output_dtype == DType::BFloat16) return store_number<math::Bfloat16>(gemm, at, y);
  store_number<float>(gemm, at, y);
}

// --- The end of a layer's formula ----------------------------------------------------------------

// By what a sum is multiplied: 1, which changes nothing, where there are no scales or slices have
// met them.
__device__ __forceinline__ float scale_at(const Gemm& gemm, const void* scales, std::int64_t at) {
  if (!scales || gemm.joins_by_scales) return 1.0f;
  return math::load_scale<float>(scales, at, gemm.epilogue.scale_dtype);
}
__device__ __forceinline__ float row_scale(const Gemm& gemm, std::int64_t row) {
  const Epilogue& e = gemm.epilogue;
  return scale_at(gemm, e.input_scale, row * e.input_scale_row);
}

// What all outputs of a column need.
struct FloatColumn {
  float scale, bias;

  FloatColumn() = default;
  __device__ __forceinline__ FloatColumn(const Gemm& gemm, std::int64_t column) {
    const Epilogue& e = gemm.epilogue;
    scale = scale_at(gemm, e.weight_scale, column * e.weight_step);
    bias = e.bias ? math::load_scale<float>(e.bias, column, e.bias_dtype) : 0.0f;
  }
};

// An output before its rounding.
__device__ __forceinline__ float finished(const Gemm& gemm, std::int64_t row, std::int64_t column,
                                          float sum, float of_row, const FloatColumn& of_column) {
  const Epilogue& e = gemm.epilogue;
  return with_addends(sum * of_row * of_column.scale, of_column.bias,
                      residual_at<float>(e, row, column), e);
}

}  // namespace planq::linear
