// In the place of src/ops/affine/affine.cuh.
#pragma once

#include "cuda/memory_access.cuh"
#include "math/formats.h"
#include "ops/affine/affine.h"

namespace planq::cuda {

template <class T>
std::uint32_t pair_of(float first, float second, T) {
  const std::uint32_t high = math::narrow<T>(second).bits;
  return math::narrow<T>(first).bits | high << 16;
}

}  // namespace planq::cuda
