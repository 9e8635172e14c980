// Values of a function of a 16-bit number, looked up in shared memory where a launch has far more
// elements than the type has numbers. The table is made by the function itself, so the bits are the
// function's. It holds the numbers of the exponents that data has, by sign; the others are
// computed.
#pragma once

#include <cstdint>
#include <type_traits>

#include "cuda/memory_access.cuh"
#include "math/formats.h"

namespace planq::cuda {

// Of magnitudes from 2^-12 up to 2^6, exclusive.
template <class T>
struct ValueTable {
  static constexpr int kFraction = std::is_same_v<T, math::Bfloat16> ? 7 : 10;
  static constexpr int kLeastExponent = -12, kExponents = 18;
  static constexpr std::uint32_t kFirst = (127 + kLeastExponent) << kFraction;
  static constexpr std::uint32_t kCount = kExponents << kFraction;  // of one sign
  static constexpr int kBytes = 2 * static_cast<int>(kCount * sizeof(float));

  // The place of a number, among those of its sign; kCount or more if it has none.
  static __device__ __forceinline__ std::uint32_t place_of(float x) {
    return ((__float_as_uint(x) & 0x7FFFFFFFu) >> (23 - kFraction)) - kFirst;
  }
  static __device__ __forceinline__ float number_at(std::uint32_t place) {
    const std::uint32_t sign = place >= kCount ? 0x80000000u : 0;
    return __uint_as_float(sign | ((place % kCount + kFirst) << (23 - kFraction)));
  }

  float* values;

  // By all threads of the block.
  template <class F>
  __device__ __forceinline__ void fill(const F& value_of) const {
    for (std::uint32_t i = threadIdx.x; i < 2 * kCount; i += blockDim.x)
      values[i] = value_of(number_at(i));
    __syncthreads();
  }
  // Replaces some numbers by their values; false: not all have a place, and nothing is done.
  template <int kNumbers>
  __device__ __forceinline__ bool replace(float (&numbers)[kNumbers]) const {
    std::uint32_t places[kNumbers], last = 0;
#pragma unroll
    for (int i = 0; i < kNumbers; ++i) {
      places[i] = place_of(numbers[i]);
      last = max(last, places[i]);
    }
    if (last >= kCount) return false;
#pragma unroll
    for (int i = 0; i < kNumbers; ++i)
      numbers[i] = values[places[i] + (__float_as_uint(numbers[i]) >> 31) * kCount];
    return true;
  }
};

// Whether so many elements for each multiprocessor are worth the time that a table takes.
template <class T>
bool is_worth_table(std::int64_t elements, std::int64_t multiprocessors) {
  constexpr std::int64_t kUses = 16;
  return elements >= kUses * 2 * ValueTable<T>::kCount * multiprocessors;
}

}  // namespace planq::cuda
