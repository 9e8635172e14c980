// Parameters of elementwise kernels that are scales of 8 bits: those of MX and NVFP4.
#pragma once

#include "ops/affine/elementwise/kernels.cuh"
#include "ops/affine/microscaling.h"

namespace planq::cuda {

// Powers of two, or float8_e4m3fn numbers under a scale of the tensor.
struct GivenGroupScales {
  const std::uint8_t* scale = nullptr;
  const float* tensor_scale = nullptr;  // null: scales are powers of two

  template <class C, int kCount, class PlaceOf>
  __device__ __forceinline__ void read(StoredParameters<C> (&to)[kCount],
                                       const PlaceOf& place_of) const {
    const DType dtype = tensor_scale ? DType::Float8E4M3FN : DType::Float8E8M0FNU;
    const float factor = tensor_scale ? __ldg(tensor_scale) : 1.0f;
    std::uint8_t stored[kCount];
#pragma unroll
    for (int i = 0; i < kCount; ++i) stored[i] = load_single(scale + place_of(i).at[kElementScale]);
#pragma unroll
    for (int i = 0; i < kCount; ++i)
      to[i] = {static_cast<C>(math::group_scale(stored[i], dtype, factor)), C{0}, 0};
  }
  template <class C>
  __device__ __forceinline__ StoredParameters<C> read_one(const ElementOffsets& at) const {
    StoredParameters<C> one[1];
    read(one, [&](int) -> const ElementOffsets& { return at; });
    return one[0];
  }
};

}  // namespace planq::cuda
