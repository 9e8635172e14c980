// What a cache holds of neighbouring elements: these, as they are or rounded, or their codes. The
// file that includes this names the type of the elements: see cuda/element.cuh.
#pragma once

#include <cstdint>

#include "cuda/codes.cuh"
#include "cuda/element.cuh"
#include "cuda/neighbours.cuh"
#include "math/conversions.h"
#include "ops/kv_cache/cache.h"

namespace planq::kv_cache {
namespace {

using cuda::Element;

template <DType kCacheType>
struct StoredAs {
  using Type = std::uint8_t;
};
template <DType kCacheType>
  requires(!is_code(kCacheType))
struct StoredAs<kCacheType> {
  using Type = math::Stored<kCacheType>;
};
template <DType kCacheType>
using Code = typename StoredAs<kCacheType>::Type;

// Each rounded once. A NaN becomes the canonical one.
template <class T, int kEach>
__device__ __forceinline__ cuda::Neighbours<T, kEach> rounded(
    const cuda::Neighbours<Element, kEach>& elements) {
  float x[kEach];
#pragma unroll
  for (int i = 0; i < kEach; ++i) x[i] = math::widened(elements.each[i]);
  const auto words = cuda::packed<T>(x);
  cuda::Neighbours<T, kEach> made;
  memcpy(made.each, words.words, sizeof made.each);
  return made;
}

// The larger one; NaN where one of them is.
__device__ __forceinline__ float larger_or_nan(float a, float b) {
#if defined(__CUDA_ARCH__)
  float larger;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(larger) : "f"(a), "f"(b));
  return larger;
#else
  return a != a || a > b ? a : b;
#endif
}

// Codes of elements that are divided one by one, whatever they are.
template <DType kCacheType>
__device__ __noinline__ std::uint8_t any_code(float x, float scale) {
  return math::cache_code<kCacheType>(x, scale);
}

// The scale of a head. Quotients of a plain one are made by cuda/codes.cuh.
struct HeadScale {
  float scale, inverse, most;  // most: of elements whose quotients are

  __device__ __forceinline__ explicit HeadScale(float own)
      : scale(own),
        inverse(cuda::inverse_of(own)),
        most(own >= cuda::kSmallScale<float> && own <= cuda::kLargeScale<float>
                 ? own * cuda::kLargeQuotient<float>
                 : -1.0f) {}
};

// A plain quotient as an integer in the low byte, or as a float that the format can hold.
template <DType kCacheType>
__device__ __forceinline__ std::uint32_t plain_code(float x, const HeadScale& own) {
  const float quotient = cuda::quotient<true>(x, own.scale, own.inverse);
  constexpr float kMost = math::kLargestCode<kCacheType>;
  if constexpr (kCacheType == DType::Int8)
    return cuda::rounded(fminf(fmaxf(quotient, -kMost), kMost));
#if PLANQ_CONVERTS_FLOAT8
  const float near = quotient;  // the instruction saturates
#else
  const float near = fminf(fmaxf(quotient, -kMost), kMost);
#endif
  return (__float_as_uint(near) & 0x7FFFFFFFu) | (__float_as_uint(x) & 0x80000000u);
}

template <DType kCacheType, int kEach>
__device__ __forceinline__ cuda::Neighbours<Code<kCacheType>, kEach> coded(
    const cuda::Neighbours<Element, kEach>& elements, float scale) {
  if constexpr (kCacheType == cuda::kElement) {
    return elements;
  } else if constexpr (!is_code(kCacheType)) {
    return rounded<Code<kCacheType>>(elements);
  } else {
    const HeadScale own(scale);
    cuda::Neighbours<std::uint8_t, kEach> codes;
    float x[kEach], most = 0;
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      x[i] = math::widened(elements.each[i]);
      most = larger_or_nan(fabsf(x[i]), most);
    }
    if (kEach % 4 != 0 || !(most <= own.most)) {
#pragma unroll
      for (int i = 0; i < kEach; ++i) codes.each[i] = any_code<kCacheType>(x[i], own.scale);
      return codes;
    }
    if constexpr (kEach % 4 == 0) {
      constexpr cuda::Codes kCodes = cuda::codes_of(kCacheType);
      std::uint32_t plain[kEach];
#pragma unroll
      for (int i = 0; i < kEach; ++i) plain[i] = plain_code<kCacheType>(x[i], own);
      const auto word = cuda::finish<kCodes, cuda::Bounds::None>(plain, kCacheType, {});
      static_assert(sizeof word == sizeof codes.each);
      memcpy(codes.each, &word, sizeof word);
    }
    return codes;
  }
}

}  // namespace
}  // namespace planq::kv_cache
