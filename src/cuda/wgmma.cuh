// Matrix products of four warps by the tensor cores of sm_90a, of bytes with sums in int32, or of
// floating numbers of 8 or 16 bits with sums in float32: both factors in shared memory, rows of 128
// bytes along the summed axis, as a copy by a tensor map with a swizzle of 128 bytes leaves them.
// Numbers of 16 bits may lie transposed: terms of 128 bytes along the factor's rows.
#pragma once

#include <cstdint>
#include <type_traits>

#include "cuda/reduce.cuh"
#include "math/formats.h"

namespace planq::cuda {

// A number that all lanes of a warp have, so that the compiler knows it, too, and computes what
// follows from it once a warp: instructions are told of factors by registers of the warp. The whole
// warp calls it; a lane alone would wait for the others for ever.
__device__ __forceinline__ int uniform(int value) { return __shfl_sync(kAllLanes, value, 0); }

inline constexpr int kProductRows = 64;   // of the first factor
inline constexpr int kProductDepth = 32;  // summed bytes of one instruction
// A box of a transposed factor: 64 rows by 64 terms of 16 bits.
inline constexpr int kTransposedTerms = 64, kTransposedBoxBytes = kTransposedTerms * 128;

// What the instruction is told of a factor that begins at `shared`, a multiple of 1024 bytes:
// address, offset 1 (not used with this swizzle) and 1024 bytes between groups of eight rows, in
// units of 16 bytes; swizzle 1 in the top bits is that of 128 bytes.
__device__ __forceinline__ std::uint64_t factor_of(std::uint32_t shared) {
  return std::uint64_t{1} << 62 | std::uint64_t{1024 >> 4} << 32 | std::uint64_t{1} << 16 |
         (shared & 0x3FFFF) >> 4;
}
// The same of a transposed factor: boxes of 64 of its rows one after another, each of 64 terms.
// Offset 1 is from a box to the next, the other one between groups of eight terms.
__device__ __forceinline__ std::uint64_t transposed_factor_of(std::uint32_t shared) {
  constexpr std::uint64_t kUnused = 1, kBox = kTransposedBoxBytes >> 4;
  return factor_of(shared) + ((kBox - kUnused) << 16);
}
// The same factor from byte `bytes` of its rows on, or from a row that is a multiple of eight on;
// transposed, from a term that is a multiple of eight on, or from a box on.
__device__ __forceinline__ std::uint64_t advanced(std::uint64_t factor, int bytes) {
  return factor + (bytes >> 4);
}

// Accumulators may be read and written before begin_products() and after wait_for_products() alone.
__device__ __forceinline__ void begin_products() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
__device__ __forceinline__ void commit_products() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
// Until at most kPending of the groups that were committed last are unfinished.
template <int kPending>
__device__ __forceinline__ void wait_for_products() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}
// What threads have written to shared memory is then read by products behind a barrier.
__device__ __forceinline__ void show_to_products() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}
// Keeps reads and writes of accumulators on this side of what follows or precedes.
template <int kCount>
__device__ __forceinline__ void pin(int (&sums)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) asm volatile("" : "+r"(sums[i])::"memory");
}

template <int kCount>
__device__ __forceinline__ void pin(float (&sums)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) asm volatile("" : "+f"(sums[i])::"memory");
}

// Operands %0 to %(n - 1), and the accumulators that they are.
#define PLANQ_NAMES_4 "%0, %1, %2, %3"
#define PLANQ_NAMES_8 "%0, %1, %2, %3, %4, %5, %6, %7"
#define PLANQ_NAMES_16 \
  PLANQ_NAMES_8        \
  ", %8, %9, %10, %11, %12, %13, %14, %15"
#define PLANQ_NAMES_32 \
  PLANQ_NAMES_16       \
  ", %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define PLANQ_NAMES_64                                                               \
  PLANQ_NAMES_32                                                                     \
  ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47" \
  ", %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define PLANQ_NAMES_128                                                                          \
  PLANQ_NAMES_64                                                                                 \
  ", %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79"             \
  ", %80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95"             \
  ", %96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111" \
  ", %112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, " \
  "%127"
#define PLANQ_SUMS_8(d, i)                                                                    \
  "+r"(d[i]), "+r"(d[i + 1]), "+r"(d[i + 2]), "+r"(d[i + 3]), "+r"(d[i + 4]), "+r"(d[i + 5]), \
      "+r"(d[i + 6]), "+r"(d[i + 7])
#define PLANQ_SUMS_16(d, i) PLANQ_SUMS_8(d, i), PLANQ_SUMS_8(d, i + 8)
#define PLANQ_SUMS_32(d, i) PLANQ_SUMS_16(d, i), PLANQ_SUMS_16(d, i + 16)
#define PLANQ_SUMS_64(d, i) PLANQ_SUMS_32(d, i), PLANQ_SUMS_32(d, i + 32)
#define PLANQ_SUMS_128(d, i) PLANQ_SUMS_64(d, i), PLANQ_SUMS_64(d, i + 64)

#define PLANQ_FLOATS_4(d, i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define PLANQ_FLOATS_8(d, i)                                                                  \
  "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), \
      "+f"(d[i + 6]), "+f"(d[i + 7])
#define PLANQ_FLOATS_16(d, i) PLANQ_FLOATS_8(d, i), PLANQ_FLOATS_8(d, i + 8)
#define PLANQ_FLOATS_32(d, i) PLANQ_FLOATS_16(d, i), PLANQ_FLOATS_16(d, i + 16)
#define PLANQ_FLOATS_64(d, i) PLANQ_FLOATS_32(d, i), PLANQ_FLOATS_32(d, i + 32)

// Adds to the sums, or begins them where `add` is 0. `a`, `b` and `p` number the operands that
// follow the sums.
#define PLANQ_PRODUCT(columns, count, a, b, p, types)                        \
  asm volatile("{.reg .pred p; setp.ne.b32 p, %" #p                          \
               ", 0;"                                                        \
               "wgmma.mma_async.sync.aligned.m64n" #columns "k32.s32." types \
               " {" PLANQ_NAMES_##count "}, %" #a ", %" #b ", p;}"           \
               : PLANQ_SUMS_##count(sums, 0)                                 \
               : "l"(first), "l"(second), "r"(add))
#define PLANQ_PRODUCT_OF_TYPES(columns, count, a, b, p)    \
  if constexpr (kColumns == columns) {                     \
    if constexpr (!kFirstUnsigned && !kSecondUnsigned)     \
      PLANQ_PRODUCT(columns, count, a, b, p, "s8.s8");     \
    else if constexpr (kFirstUnsigned && !kSecondUnsigned) \
      PLANQ_PRODUCT(columns, count, a, b, p, "u8.s8");     \
    else if constexpr (!kFirstUnsigned && kSecondUnsigned) \
      PLANQ_PRODUCT(columns, count, a, b, p, "s8.u8");     \
    else                                                   \
      PLANQ_PRODUCT(columns, count, a, b, p, "u8.u8");     \
  }

// sums of 64 rows of the first factor with kColumns rows of the second, over 32 bytes of each.
// Thread t has, of row t / 32 * 16 + t % 32 / 4, the sums 4 j and 4 j + 1 at columns
// 8 j + t % 4 * 2 and the next; 4 j + 2 and 4 j + 3 are those of the row eight below.
template <bool kFirstUnsigned, bool kSecondUnsigned, int kColumns>
__device__ __forceinline__ void add_product(int (&sums)[kColumns / 2], std::uint64_t first,
                                            std::uint64_t second, int add) {
  PLANQ_PRODUCT_OF_TYPES(16, 8, 8, 9, 10)
  PLANQ_PRODUCT_OF_TYPES(32, 16, 16, 17, 18)
  PLANQ_PRODUCT_OF_TYPES(64, 32, 32, 33, 34)
  PLANQ_PRODUCT_OF_TYPES(128, 64, 64, 65, 66) PLANQ_PRODUCT_OF_TYPES(256, 128, 128, 129, 130)
}
// Types of 8-bit floating codes.
struct E4M3 {
  std::uint8_t code;
};
struct E5M2 {
  std::uint8_t code;
};
// Numbers of 16 bits whose factor lies transposed.
template <class T>
struct Transposed {
  T number;
};
template <class T>
inline constexpr bool kTransposed = false;
template <class T>
inline constexpr bool kTransposed<Transposed<T>> = true;
template <class T>
struct NumberOf {
  using Type = T;
};
template <class T>
struct NumberOf<Transposed<T>> {
  using Type = T;
};

// The same of the floating numbers of A and B that 32 bytes hold, in the arithmetic of
// math/tensor_core.h: one step of it onto each sum. `lie` names operands x and y where numbers may
// lie transposed, those of 16 bits.
#define PLANQ_EITHER_WAY(x, y) ", %" #x ", %" #y
#define PLANQ_ONE_WAY(x, y) ""
#define PLANQ_FLOAT_PRODUCT(columns, count, a, b, p, x, y, types, lie)                     \
  asm volatile("{.reg .pred p; setp.ne.b32 p, %" #p                                        \
               ", 0;"                                                                      \
               "wgmma.mma_async.sync.aligned.m64n" #columns types " {" PLANQ_NAMES_##count \
               "}, %" #a ", %" #b ", p, 1, 1" lie(x, y) ";}"                               \
               : PLANQ_FLOATS_##count(sums, 0)                                             \
               : "l"(first), "l"(second), "r"(add), "n"(static_cast<int>(kTransposed<A>)), \
                 "n"(static_cast<int>(kTransposed<B>)))
#define PLANQ_FLOAT_PRODUCT_OF_COLUMNS(types, lie)               \
  if constexpr (kColumns == 16)                                  \
    PLANQ_FLOAT_PRODUCT(16, 8, 8, 9, 10, 11, 12, types, lie);    \
  else if constexpr (kColumns == 32)                             \
    PLANQ_FLOAT_PRODUCT(32, 16, 16, 17, 18, 19, 20, types, lie); \
  else if constexpr (kColumns == 64)                             \
    PLANQ_FLOAT_PRODUCT(64, 32, 32, 33, 34, 35, 36, types, lie); \
  else                                                           \
    PLANQ_FLOAT_PRODUCT(128, 64, 64, 65, 66, 67, 68, types, lie)
template <class A, class B, int kSums>
__device__ __forceinline__ void add_step(float (&sums)[kSums], std::uint64_t first,
                                         std::uint64_t second, int add) {
  constexpr int kColumns = 2 * kSums;
  static_assert(kColumns == 16 || kColumns == 32 || kColumns == 64 || kColumns == 128);
  using Number = typename NumberOf<A>::Type;
  if constexpr (std::is_same_v<Number, math::Half>) {
    PLANQ_FLOAT_PRODUCT_OF_COLUMNS("k16.f32.f16.f16", PLANQ_EITHER_WAY);
  } else if constexpr (std::is_same_v<Number, math::Bfloat16>) {
    PLANQ_FLOAT_PRODUCT_OF_COLUMNS("k16.f32.bf16.bf16", PLANQ_EITHER_WAY);
  } else if constexpr (std::is_same_v<A, E4M3> && std::is_same_v<B, E4M3>) {
    PLANQ_FLOAT_PRODUCT_OF_COLUMNS("k32.f32.e4m3.e4m3", PLANQ_ONE_WAY);
  } else if constexpr (std::is_same_v<A, E4M3>) {
    PLANQ_FLOAT_PRODUCT_OF_COLUMNS("k32.f32.e4m3.e5m2", PLANQ_ONE_WAY);
  } else if constexpr (std::is_same_v<B, E4M3>) {
    PLANQ_FLOAT_PRODUCT_OF_COLUMNS("k32.f32.e5m2.e4m3", PLANQ_ONE_WAY);
  } else {
    PLANQ_FLOAT_PRODUCT_OF_COLUMNS("k32.f32.e5m2.e5m2", PLANQ_ONE_WAY);
  }
}

// The same of numbers of 16 bits with the first factor in registers, which must not change before
// wait_for_products(). Of lane l of a warp, with g = l / 4, t = l % 4, and 16 rows a warp:
//   first[0], first[1]  terms 2t and 2t + 1 of rows g and g + 8
//   first[2], first[3]  the same eight terms further
#define PLANQ_HELD_PRODUCT(columns, count, sums_are, a0, a1, a2, a3, b, p, type)            \
  asm volatile("{.reg .pred p; setp.ne.b32 p, %" #p                                         \
               ", 0;"                                                                       \
               "wgmma.mma_async.sync.aligned.m64n" #columns "k16.f32." type "." type        \
               " {" PLANQ_NAMES_##count "}, {%" #a0 ", %" #a1 ", %" #a2 ", %" #a3 "}, %" #b \
                                        ", p, 1, 1, 0;}"                                    \
               : PLANQ_##sums_are##_##count(sums, 0)                                        \
               : "r"(first[0]), "r"(first[1]), "r"(first[2]), "r"(first[3]), "l"(second),   \
                 "r"(add))
#define PLANQ_HELD_PRODUCT_OF_COLUMNS(type)                           \
  if constexpr (kSums == 4)                                           \
    PLANQ_HELD_PRODUCT(8, 4, FLOATS, 4, 5, 6, 7, 8, 9, type);         \
  else if constexpr (kSums == 8)                                      \
    PLANQ_HELD_PRODUCT(16, 8, FLOATS, 8, 9, 10, 11, 12, 13, type);    \
  else if constexpr (kSums == 16)                                     \
    PLANQ_HELD_PRODUCT(32, 16, FLOATS, 16, 17, 18, 19, 20, 21, type); \
  else if constexpr (kSums == 32)                                     \
    PLANQ_HELD_PRODUCT(64, 32, FLOATS, 32, 33, 34, 35, 36, 37, type); \
  else                                                                \
    PLANQ_HELD_PRODUCT(128, 64, FLOATS, 64, 65, 66, 67, 68, 69, type)
template <class T, int kSums>
__device__ __forceinline__ void add_held_step(float (&sums)[kSums], const std::uint32_t (&first)[4],
                                              std::uint64_t second, int add) {
  static_assert(kSums == 4 || kSums == 8 || kSums == 16 || kSums == 32 || kSums == 64);
  if constexpr (std::is_same_v<T, math::Half>) {
    PLANQ_HELD_PRODUCT_OF_COLUMNS("f16");
  } else {
    PLANQ_HELD_PRODUCT_OF_COLUMNS("bf16");
  }
}

// Of 128 rows of the second factor, onto float32 sums that are in registers of integers.
template <class T>
__device__ __forceinline__ void add_held_step(int (&sums)[64], const std::uint32_t (&first)[4],
                                              std::uint64_t second) {
  constexpr int add = 1;
  if constexpr (std::is_same_v<T, math::Half>)
    PLANQ_HELD_PRODUCT(128, 64, SUMS, 64, 65, 66, 67, 68, 69, "f16");
  else
    PLANQ_HELD_PRODUCT(128, 64, SUMS, 64, 65, 66, 67, 68, 69, "bf16");
}

#undef PLANQ_HELD_PRODUCT_OF_COLUMNS
#undef PLANQ_HELD_PRODUCT
#undef PLANQ_FLOAT_PRODUCT_OF_COLUMNS
#undef PLANQ_FLOAT_PRODUCT
#undef PLANQ_ONE_WAY
#undef PLANQ_EITHER_WAY
#undef PLANQ_PRODUCT_OF_TYPES
#undef PLANQ_PRODUCT
#undef PLANQ_FLOATS_64
#undef PLANQ_FLOATS_32
#undef PLANQ_FLOATS_16
#undef PLANQ_FLOATS_8
#undef PLANQ_FLOATS_4
#undef PLANQ_SUMS_128
#undef PLANQ_SUMS_64
#undef PLANQ_SUMS_32
#undef PLANQ_SUMS_16
#undef PLANQ_SUMS_8
#undef PLANQ_NAMES_128
#undef PLANQ_NAMES_64
#undef PLANQ_NAMES_32
#undef PLANQ_NAMES_16
#undef PLANQ_NAMES_8
#undef PLANQ_NAMES_4

// How many registers a thread of this group of four warps may use from here on: fewer or more than
// it was launched with. All four warps call it.
template <int kRegisters>
__device__ __forceinline__ void lower_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}
template <int kRegisters>
__device__ __forceinline__ void raise_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

}  // namespace planq::cuda
