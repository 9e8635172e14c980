// In the place of src/ops/affine/affine.cuh.
#pragma once

#include "cuda/codes.cuh"
#include "cuda/pairs.cuh"
#include "ops/affine/affine.h"

namespace planq::cuda {

template <class T, int kCount>
using VectorOf =
    std::conditional_t<sizeof(T) * kCount == 16, uint4, Word<static_cast<int>(sizeof(T)) * kCount>>;
template <class T, int kCount>
VectorOf<T, kCount> narrow_vector(const math::Compute<T> (&values)[kCount]) {
  T narrowed[kCount];
  for (int i = 0; i < kCount; ++i) narrowed[i] = math::narrow<T>(values[i]);
  VectorOf<T, kCount> vector;
  std::memcpy(&vector, narrowed, sizeof vector);
  return vector;
}
template <class C, int kCount>
bool any_nan(const C (&values)[kCount]) {
  return std::any_of(values, values + kCount, [](C x) { return x != x; });
}

// Of the sum of the steps that the kernel takes.
template <bool kDivide>
float signed_quotient(float x, float scale, float inverse) {
  const float product = x * inverse;
  return kDivide ? __fmaf_rn(__fmaf_rn(product, scale, -x), -inverse, product) : product;
}

}  // namespace planq::cuda
