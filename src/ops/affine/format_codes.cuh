// Codes of MX and NVFP4 on CUDA: two or four threads for each group, eight elements a thread.
#pragma once

#include <cstdint>
#include <cstring>

#include "cuda/codes.cuh"
#include "cuda/memory_access.cuh"
#include "math/formats.h"
#include "ops/affine/float8_code.h"
#include "ops/affine/microscaling.h"

namespace planq::affine {

inline constexpr int kFormatEach = 8;  // elements of a thread
template <class F>
inline constexpr int kFormatLanes = F::kGroup / kFormatEach;  // threads of a group
template <class F>
inline constexpr int kFormatBytes = F::kFourBit ? kFormatEach / 2 : kFormatEach;
template <class F>
using FormatWord = cuda::Word<kFormatBytes<F>>;

// The eight elements of a thread.
template <class T>
struct FormatElements {
  uint4 v[sizeof(T) * kFormatEach / cuda::kVectorBytes];

  __device__ __forceinline__ float operator[](int i) const {
    return cuda::element_of<T>(v[i / cuda::kPerVector<T>], i % cuda::kPerVector<T>);
  }
  __device__ __forceinline__ void load(const T* from) {
#pragma unroll
    for (uint4& vector : v) {
      vector = cuda::load_once(from);
      from += cuda::kPerVector<T>;
    }
  }
  // At any address, and zeros beyond `count`.
  __device__ __forceinline__ void load_singles(const T* from, int count) {
    T each[kFormatEach] = {};
#pragma unroll
    for (int i = 0; i < kFormatEach; ++i)
      if (i < count) each[i] = cuda::load_single(from + i);
    memcpy(v, each, sizeof v);
  }
  // The bits, as a float, of the largest magnitude.
  __device__ __forceinline__ std::uint32_t peak() const {
    std::uint32_t most = 0;
#pragma unroll
    for (const uint4& vector : v) {
      const std::uint32_t words[4] = {vector.x, vector.y, vector.z, vector.w};
#pragma unroll
      for (const std::uint32_t word : words)
        most = sizeof(T) == 2 ? __vmaxu2(most, word & 0x7FFF7FFFu) : max(most, word & 0x7FFFFFFFu);
    }
    if constexpr (sizeof(T) == 2) {
      const auto bits = static_cast<std::uint16_t>(max(most >> 16, most & 0xFFFFu));
      return __float_as_uint(math::widen(T{bits}));
    }
    return most;
  }
};

// The bits of the largest magnitude of the group that the thread is in; the whole warp calls this.
template <class F>
__device__ __forceinline__ std::uint32_t format_peak(std::uint32_t peak) {
#pragma unroll
  for (int step = kFormatLanes<F> / 2; step > 0; step /= 2)
    peak = max(peak, __shfl_xor_sync(cuda::kAllLanes, peak, step));
  return peak;
}

// The code of one element after another, for what the fast ways leave out: NaNs that a factor of
// the tensor makes.
template <class T, class F>
__device__ __noinline__ FormatWord<F> slow_format_codes(FormatElements<T> x,
                                                        math::FormatScale scale,
                                                        NibbleOrder order) {
  std::uint32_t codes[kFormatEach];
#pragma unroll
  for (int i = 0; i < kFormatEach; ++i) codes[i] = math::group_code<F::kCode>(x[i], scale);
  return cuda::pack<F::kFourBit ? cuda::Codes::Nibble : cuda::Codes::Byte>(codes, order);
}

// Codes of four elements in 8 bits each. The conversion saturates; without the instruction the
// bounds do.
template <class F, class Value>
__device__ __forceinline__ std::uint32_t float8_format_codes(const Value& value) {
  constexpr auto kMost = static_cast<float>(format_of(F::kCode).largest);
  const auto bounded = [&](int i) {
    return PLANQ_CONVERTS_FLOAT8 ? value(i) : fminf(fmaxf(value(i), -kMost), kMost);
  };
  return cuda::float8_quad<cuda::codes_of(F::kCode)>(bounded(0), bounded(1), bounded(2),
                                                     bounded(3));
}

template <class T, class F>
__device__ __forceinline__ FormatWord<F> format_codes(const FormatElements<T>& x,
                                                      const math::FormatScale& scale,
                                                      NibbleOrder order) {
  if (scale.poisoned) {
    constexpr auto kEvery = static_cast<FormatWord<F>>(~FormatWord<F>{0}) / 0xFF;
    return static_cast<FormatWord<F>>(kEvery * math::kPoisonedCode<F::kCode>);
  }
  // No product of others is a NaN.
  if (!F::kMx && !(math::is_finite(scale.factor) && scale.factor != 0.0f))
    return slow_format_codes<T, F>(x, scale, order);
  if constexpr (F::kFourBit) {
    std::uint32_t word = 0;
#pragma unroll
    for (int i = kFormatEach - 1; i >= 0; --i)
      word = word << 4 | host::E2M1Code::of(x[i] * scale.factor);
    if (order != NibbleOrder::LowFirst)
      word = (word & 0x0F0F0F0Fu) << 4 | (word >> 4 & 0x0F0F0F0Fu);
    return word;
  } else {
    const auto quad = [&](int first) {
      return float8_format_codes<F>([&](int i) { return x[first + i] * scale.factor; });
    };
    return static_cast<std::uint64_t>(quad(4)) << 32 | quad(0);
  }
}

}  // namespace planq::affine
