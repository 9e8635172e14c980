// Outputs in float32, one a thread or a warp: where each belongs, and how it is stored.
#pragma once

#include "ops/affine/affine.cuh"
#include "ops/linear/gemm.h"

namespace planq::linear {

// An output's place, and the product of the batch that it belongs to.
struct OutputPlace {
  Product product;
  std::int64_t row, column;

  __device__ __forceinline__ OutputPlace(const Product& whole, std::int64_t index)
      : product(whole.at(index / (whole.m * whole.n))),
        row(index / whole.n % whole.m),
        column(index % whole.n) {}
};

template <class T>
__device__ __forceinline__ void store_number(const Product& product, std::int64_t at, float y) {
  const float canonical = math::is_nan(y) ? math::canonical_nan<float>() : y;
  reinterpret_cast<T*>(product.output)[at] = math::narrow<T>(canonical);
}

// Rounded to the output's type, which is not float64.
__device__ __forceinline__ void store_output(const Product& product, std::int64_t row,
                                             std::int64_t column, float y) {
  const std::int64_t at = row * product.output_row + column;
  if (product.output_dtype == DType::Float16) return store_number<math::Half>(product, at, y);
  if (product.output_dtype == DType::BFloat16) return store_number<math::Bfloat16>(product, at, y);
  store_number<float>(product, at, y);
}

// --- The end of a layer's formula ----------------------------------------------------------------

// By what a sum is multiplied: 1, which changes nothing, where there are no scales or slices have
// met them.
__device__ __forceinline__ float scale_at(const Product& product, const void* scales,
                                          std::int64_t at) {
  if (!scales || product.joins_by_scales) return 1.0f;
  return math::load_scale<float>(scales, at, product.epilogue.scale_dtype);
}
__device__ __forceinline__ float row_scale(const Product& product, std::int64_t row) {
  const Epilogue& e = product.epilogue;
  return scale_at(product, e.input_scale, row * e.input_scale_row);
}

// What all outputs of a column need.
struct FloatColumn {
  float scale, bias;

  FloatColumn() = default;
  __device__ __forceinline__ FloatColumn(const Product& product, std::int64_t column) {
    const Epilogue& e = product.epilogue;
    scale = scale_at(product, e.weight_scale, column * e.weight_step);
    bias = e.bias ? math::load_scale<float>(e.bias, column, e.bias_dtype) : 0.0f;
  }
};

// An output before its rounding.
__device__ __forceinline__ float finished(const Product& product, std::int64_t row,
                                          std::int64_t column, float sum, float of_row,
                                          const FloatColumn& of_column) {
  const Epilogue& e = product.epilogue;
  return with_addends(sum * of_row * of_column.scale, of_column.bias,
                      residual_at<float>(e, row, column), e);
}

}  // namespace planq::linear
