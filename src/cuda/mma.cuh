// Matrix multiplication by the tensor cores of one warp (mma.sync), of 8-bit codes or 16-bit
// numbers, and what feeds it: asynchronous copies to shared memory, and loads of matrices from
// there to registers (ldmatrix).
#pragma once

#include <cstdint>

#include "cuda/reduce.cuh"
#include "math/formats.h"

namespace planq::cuda {

// Begins to copy 16 bytes to shared memory.
__device__ __forceinline__ void copy_async(std::uint32_t shared, const void* from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared), "l"(from) : "memory");
}
// The same for kBytes bytes, 4 or 8.
template <int kBytes>
__device__ __forceinline__ void copy_async(std::uint32_t shared, const void* from) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(shared), "l"(from), "n"(kBytes)
               : "memory");
}

__device__ __forceinline__ void store_shared(std::uint32_t shared, std::uint32_t word) {
  asm volatile("st.shared.u32 [%0], %1;" ::"r"(shared), "r"(word) : "memory");
}
__device__ __forceinline__ void store_shared(std::uint32_t shared, uint2 words) {
  asm volatile("st.shared.v2.u32 [%0], {%1, %2};" ::"r"(shared), "r"(words.x), "r"(words.y)
               : "memory");
}
__device__ __forceinline__ void store_shared(std::uint32_t shared, const uint4& words) {
  asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(shared), "r"(words.x), "r"(words.y),
               "r"(words.z), "r"(words.w)
               : "memory");
}

// Loads four matrices of 8 rows of 16 bytes. Lane l gives the address of row l % 8 of matrix l / 8.
// It gets bytes 4 (l % 4) to 4 (l % 4) + 3 of row l / 4 of each matrix.
__device__ __forceinline__ void load_matrices(std::uint32_t (&words)[4], std::uint32_t shared) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
               : "r"(shared)
               : "memory");
}
// The same for matrices of 16-bit numbers, transposed: lane l gets number l / 4 of rows 2 (l % 4)
// and 2 (l % 4) + 1 of each matrix.
__device__ __forceinline__ void load_transposed_matrices(std::uint32_t (&words)[4],
                                                         std::uint32_t shared) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
               : "r"(shared)
               : "memory");
}

// sums += a b^T over 32 terms, modulo 2^32, where a has 16 rows and b has 8. With g = l / 4 and t =
// l % 4, lane l has
//   a[0], a[1]  terms 4t ... 4t + 3 of rows g and g + 8
//   a[2], a[3]  the same 16 terms further
//   b0, b1      terms 4t ... 4t + 3 of row g, and those 16 terms further
//   sums        row g of a with rows 2t and 2t + 1 of b, then row g + 8 of a with the same
#define PLANQ_MMA(a_type, b_type)                                            \
  asm("mma.sync.aligned.m16n8k32.row.col.s32." a_type "." b_type             \
      ".s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};" \
      : "+r"(sums[0]), "+r"(sums[1]), "+r"(sums[2]), "+r"(sums[3])           \
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1))
template <bool kUnsignedA, bool kUnsignedB>
__device__ __forceinline__ void multiply_add(std::int32_t (&sums)[4], const std::uint32_t (&a)[4],
                                             std::uint32_t b0, std::uint32_t b1) {
  if constexpr (kUnsignedA && kUnsignedB)
    PLANQ_MMA("u8", "u8");
  else if constexpr (kUnsignedA)
    PLANQ_MMA("u8", "s8");
  else if constexpr (kUnsignedB)
    PLANQ_MMA("s8", "u8");
  else
    PLANQ_MMA("s8", "s8");
}
#undef PLANQ_MMA

// sums = start + a b^T over 32 terms of codes, of which those of b are signed.
#define PLANQ_MMA(a_type)                                                           \
  asm("mma.sync.aligned.m16n8k32.row.col.s32." a_type                               \
      ".s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %10, %10, %10};" \
      : "=r"(sums[0]), "=r"(sums[1]), "=r"(sums[2]), "=r"(sums[3])                  \
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "r"(start))
template <bool kUnsignedA>
__device__ __forceinline__ void multiply_onto(std::int32_t start, std::int32_t (&sums)[4],
                                              const std::uint32_t (&a)[4],
                                              const std::uint32_t (&b)[2]) {
  if constexpr (kUnsignedA)
    PLANQ_MMA("u8");
  else
    PLANQ_MMA("s8");
}
#undef PLANQ_MMA

// The same over 16 terms. Lane l has
//   a[0], a[1]  terms 4t ... 4t + 3 of rows g and g + 8
//   b[0]        terms 4t ... 4t + 3 of row g
#define PLANQ_MMA(a_type)                                           \
  asm("mma.sync.aligned.m16n8k16.row.col.s32." a_type               \
      ".s8.s32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%7, %7, %7, %7};" \
      : "=r"(sums[0]), "=r"(sums[1]), "=r"(sums[2]), "=r"(sums[3])  \
      : "r"(a[0]), "r"(a[1]), "r"(b[0]), "r"(start))
template <bool kUnsignedA>
__device__ __forceinline__ void multiply_onto(std::int32_t start, std::int32_t (&sums)[4],
                                              const std::uint32_t (&a)[2],
                                              const std::uint32_t (&b)[1]) {
  if constexpr (kUnsignedA)
    PLANQ_MMA("u8");
  else
    PLANQ_MMA("s8");
}
#undef PLANQ_MMA

// The same onto the sums that there are.
template <bool kUnsignedA>
__device__ __forceinline__ void multiply_further(std::int32_t (&sums)[4],
                                                 const std::uint32_t (&a)[4],
                                                 const std::uint32_t (&b)[2]) {
  multiply_add<kUnsignedA, false>(sums, a, b[0], b[1]);
}
#define PLANQ_MMA(a_type)                                           \
  asm("mma.sync.aligned.m16n8k16.row.col.s32." a_type               \
      ".s8.s32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};" \
      : "+r"(sums[0]), "+r"(sums[1]), "+r"(sums[2]), "+r"(sums[3])  \
      : "r"(a[0]), "r"(a[1]), "r"(b[0]))
template <bool kUnsignedA>
__device__ __forceinline__ void multiply_further(std::int32_t (&sums)[4],
                                                 const std::uint32_t (&a)[2],
                                                 const std::uint32_t (&b)[1]) {
  if constexpr (kUnsignedA)
    PLANQ_MMA("u8");
  else
    PLANQ_MMA("s8");
}
#undef PLANQ_MMA

// sums += a b^T over 16 terms of 16-bit numbers, two in a word. On sm_90 the arithmetic is one step
// of math/tensor_core.h for each sum. With g = l / 4 and t = l % 4, lane l has
//   a[0], a[1]  terms 2t and 2t + 1 of rows g and g + 8
//   a[2], a[3]  the same eight terms further
//   b0, b1      terms 2t and 2t + 1 of row g, and those eight terms further
//   sums        row g of a with rows 2t and 2t + 1 of b, then row g + 8 of a with the same
#define PLANQ_MMA(type)                                                      \
  asm("mma.sync.aligned.m16n8k16.row.col.f32." type "." type                 \
      ".f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};" \
      : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])           \
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1))
template <class T>
__device__ __forceinline__ void multiply_add_floats(float (&sums)[4], const std::uint32_t (&a)[4],
                                                    std::uint32_t b0, std::uint32_t b1) {
  if constexpr (std::is_same_v<T, math::Half>)
    PLANQ_MMA("f16");
  else
    PLANQ_MMA("bf16");
}
#undef PLANQ_MMA

}  // namespace planq::cuda
