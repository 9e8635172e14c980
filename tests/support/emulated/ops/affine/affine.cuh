// In the place of src/ops/affine/affine.cuh.
#pragma once

#include "cuda/pairs.cuh"
#include "ops/affine/affine.h"

namespace planq::cuda {

// Of src/cuda/codes.cuh.
inline float inverse_of(float scale) { return 1 / scale; }
// Of the sum of the steps that the kernel takes.
template <bool kDivide>
float signed_quotient(float x, float scale, float inverse) {
  const float product = x * inverse;
  return kDivide ? __fmaf_rn(__fmaf_rn(product, scale, -x), -inverse, product) : product;
}

}  // namespace planq::cuda
