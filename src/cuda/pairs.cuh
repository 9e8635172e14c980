// Two 16-bit elements in a word, the first in its low half; and two codes.
#pragma once

#include <cstdint>

#include "cuda/memory_access.cuh"
#include "math/formats.h"

namespace planq::cuda {

// Floats rounded to the type. A NaN is not made the canonical one.
__device__ __forceinline__ std::uint32_t pair_of(float first, float second, math::Half) {
  std::uint32_t pair;
  asm("cvt.rn.f16x2.f32 %0, %2, %1;" : "=r"(pair) : "f"(first), "f"(second));
  return pair;
}
__device__ __forceinline__ std::uint32_t pair_of(float first, float second, math::Bfloat16) {
  std::uint32_t pair;
  asm("cvt.rn.bf16x2.f32 %0, %2, %1;" : "=r"(pair) : "f"(first), "f"(second));
  return pair;
}

// Element i, 0 or 1, of a pair as a float.
template <class T>
__device__ __forceinline__ float of_pair(std::uint32_t pair, int i) {
  if constexpr (std::is_same_v<T, math::Bfloat16>) {
    return __uint_as_float(i == 1 ? pair & 0xFFFF0000u : pair << 16);
  } else {
    float value;
    if (i == 1)
      asm("{.reg .b16 low, high; mov.b32 {low, high}, %1; cvt.f32.f16 %0, high;}"
          : "=f"(value)
          : "r"(pair));
    else
      asm("{.reg .b16 low, high; mov.b32 {low, high}, %1; cvt.f32.f16 %0, low;}"
          : "=f"(value)
          : "r"(pair));
    return value;
  }
}

// Two codes of an 8-bit floating type as float16, which holds their values exactly. Each is in the
// upper half of its number's place; below it are zeros.
__device__ __forceinline__ std::uint32_t half_pair_of_codes(std::uint32_t codes, DType type) {
  if (type == DType::Float8E5M2) return codes;  // float16 with fewer fraction bits
  // One exponent bit less: moved to their places, the bits stand for 2^-8 of the value.
  const std::uint32_t moved = (codes & 0x80008000u) | (codes & 0x7F007F00u) >> 1;
  std::uint32_t pair;
  asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(pair) : "r"(moved), "r"(0x5C005C00u));
  // The only NaN of e4m3 has all bits set, and no infinity is beside it.
  return pair | (__vcmpeq2(codes & 0x7F007F00u, 0x7F007F00u) & 0x7FFF7FFFu);
}

// The bits of a word under a mask, some of them turned over: the compiler makes two instructions of
// what is one.
__device__ __forceinline__ std::uint32_t masked_and_flipped(std::uint32_t word, std::uint32_t mask,
                                                            std::uint32_t flips) {
  std::uint32_t result;
  asm("lop3.b32 %0, %1, %2, %3, 0x6A;" : "=r"(result) : "r"(word), "r"(mask), "r"(flips));
  return result;
}

// The sign of each half repeated over its 16 bits: a mode of PRMT that __byte_perm does not offer.
__device__ __forceinline__ std::uint32_t signs_of_halves(std::uint32_t word) {
  std::uint32_t signs;
  asm("prmt.b32 %0, %1, 0, 0xBB99;" : "=r"(signs) : "r"(word));
  return signs;
}

// The bits of one word under a mask, and of another where it has none: likewise one instruction.
__device__ __forceinline__ std::uint32_t bits_of_both(std::uint32_t under, std::uint32_t other,
                                                      std::uint32_t mask) {
  std::uint32_t result;
  asm("lop3.b32 %0, %1, %2, %3, 0xE4;" : "=r"(result) : "r"(under), "r"(other), "r"(mask));
  return result;
}

// Two floats as codes of kBits bits, rounded and saturated, the first in the low bits; the bits of
// `above` are shifted up to make room for them. A NaN has the code 0.
template <bool kSigned, int kBits>
__device__ __forceinline__ std::uint32_t codes_of_pair(float first, float second,
                                                       std::uint32_t above) {
  std::int32_t low, high;
  asm("cvt.rni.s32.f32 %0, %1;" : "=r"(low) : "f"(first));
  asm("cvt.rni.s32.f32 %0, %1;" : "=r"(high) : "f"(second));
  std::uint32_t codes;
  if constexpr (kSigned && kBits == 8)
    asm("cvt.pack.sat.s8.s32.b32 %0, %1, %2, %3;" : "=r"(codes) : "r"(high), "r"(low), "r"(above));
  else if constexpr (kSigned)
    asm("cvt.pack.sat.s4.s32.b32 %0, %1, %2, %3;" : "=r"(codes) : "r"(high), "r"(low), "r"(above));
  else if constexpr (kBits == 8)
    asm("cvt.pack.sat.u8.s32.b32 %0, %1, %2, %3;" : "=r"(codes) : "r"(high), "r"(low), "r"(above));
  else
    asm("cvt.pack.sat.u4.s32.b32 %0, %1, %2, %3;" : "=r"(codes) : "r"(high), "r"(low), "r"(above));
  return codes;
}

// Maxima and minima of two pairs; a NaN wins.
#define PLANQ_PAIR_EXTREME(name, op)                                                \
  template <class T>                                                                \
  __device__ __forceinline__ std::uint32_t name(std::uint32_t a, std::uint32_t b) { \
    std::uint32_t result;                                                           \
    if constexpr (std::is_same_v<T, math::Bfloat16>)                                \
      asm(op ".NaN.bf16x2 %0, %1, %2;" : "=r"(result) : "r"(a), "r"(b));            \
    else                                                                            \
      asm(op ".NaN.f16x2 %0, %1, %2;" : "=r"(result) : "r"(a), "r"(b));             \
    return result;                                                                  \
  }
PLANQ_PAIR_EXTREME(pair_max, "max")
PLANQ_PAIR_EXTREME(pair_min, "min")
#undef PLANQ_PAIR_EXTREME

}  // namespace planq::cuda
