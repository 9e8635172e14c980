// Outputs in float32, one a thread or a warp: where each belongs, and how it is stored.
#pragma once

#include "ops/affine/affine.cuh"
#include "ops/linear/product.h"

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

}  // namespace planq::linear
