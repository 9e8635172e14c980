// The conversions of math/formats.h between float and 16-bit types, by the instructions that a GPU
// has for them.
#pragma once

#include "math/formats.h"

namespace planq::math {

// narrow() and widen() by one instruction each, where there is one. The instruction has NaNs of its
// own.
template <class T>
PLANQ_HD T narrowed(float value) {
#if defined(__CUDA_ARCH__)
  if constexpr (sizeof(T) == 2) {
    std::uint16_t bits;
    if constexpr (std::is_same_v<T, Half>)
      asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
    else
      asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(value));
    return value == value ? T{bits} : narrow<T>(canonical_nan<float>());
  }
#endif
  return narrow<T>(value);
}
template <class T>
PLANQ_HD float widened(T element) {
#if defined(__CUDA_ARCH__)
  if constexpr (std::is_same_v<T, Half>) {
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(element.bits));
    return value;
  }
#endif
  return widen(element);
}

// Rounds to an element type on the way.
template <class T>
PLANQ_HD float rounded_to(float value) {
  return widened(narrowed<T>(value));
}

}  // namespace planq::math
