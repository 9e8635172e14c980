// Matrix multiplication by the tensor cores of sm_90a (wgmma): four warps, a warpgroup, multiply
// bytes with sums in int32, or floating numbers of 8 or 16 bits with sums in float32.
//
// Both operands are in shared memory, as TMA leaves them with a swizzle of 128 bytes: rows of 128
// bytes along the summed axis. 16-bit numbers may be transposed: terms of 128 bytes along the
// operand's rows. The first operand may also be in registers.
//
// "First" and "second" are the operands of the instruction: the sums have the first one's rows as
// rows, and the second one's rows as columns.
#pragma once

#include <cstdint>
#include <type_traits>

#include "cuda/reduce.cuh"
#include "math/formats.h"

namespace planq::cuda {

// A number that all lanes of a warp have. The shuffle tells the compiler so: it then keeps what
// follows from the number in registers of the warp, which is where wgmma wants descriptors. The
// whole warp has to call it; a lane alone would wait for ever.
__device__ __forceinline__ int uniform(int value) { return __shfl_sync(kAllLanes, value, 0); }

inline constexpr int kWgmmaRows = 64;   // rows of the first operand in one instruction
inline constexpr int kWgmmaBytes = 32;  // bytes along the summed axis in one instruction
// A TMA box of a transposed operand has 64 rows by 64 terms of 16 bits.
inline constexpr int kTransposedTerms = 64, kTransposedBoxBytes = kTransposedTerms * 128;

// The shared-memory matrix descriptor of an operand that begins at `shared`, a multiple of 1024.
// Lengths are in units of 16 bytes. Its fields are the address, the leading offset (not used with
// this swizzle, so 1), the stride offset of 1024 bytes from eight rows to the next eight, and in
// the top bits layout 1, the swizzle of 128 bytes.
__device__ __forceinline__ std::uint64_t descriptor_of(std::uint32_t shared) {
  return std::uint64_t{1} << 62 | std::uint64_t{1024 >> 4} << 32 | std::uint64_t{1} << 16 |
         (shared & 0x3FFFF) >> 4;
}
// The descriptor of a transposed operand. It consists of TMA boxes, one after another, of kTerms
// terms by 64 rows. The leading offset is from a box to the next, the stride offset from eight
// terms to the next eight.
template <int kTerms = kTransposedTerms>
__device__ __forceinline__ std::uint64_t transposed_descriptor_of(std::uint32_t shared) {
  constexpr std::uint64_t kUnused = 1, kBox = kTerms * 128 >> 4;
  return descriptor_of(shared) + ((kBox - kUnused) << 16);
}
// The descriptor `bytes` further. That may lead to another byte of the same rows, or to a row that
// is a multiple of eight; in a transposed operand, to a term that is a multiple of eight, or to
// another box.
__device__ __forceinline__ std::uint64_t advanced(std::uint64_t descriptor, int bytes) {
  return descriptor + (bytes >> 4);
}

// Accumulators may be read and written only before wgmma_fence() and after wgmma_wait().
__device__ __forceinline__ void wgmma_fence() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
__device__ __forceinline__ void wgmma_commit() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
// Waits until at most kPending of the groups committed last are unfinished.
template <int kPending>
__device__ __forceinline__ void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}
// Makes a thread's writes to shared memory visible to wgmma. A barrier has to follow.
__device__ __forceinline__ void fence_async_proxy() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}
// Keeps the compiler from moving accesses to accumulators across this point.
template <int kCount>
__device__ __forceinline__ void pin(int (&sums)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) asm volatile("" : "+r"(sums[i])::"memory");
}

template <int kCount>
__device__ __forceinline__ void pin(std::uint32_t (&words)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) asm volatile("" : "+r"(words[i])::"memory");
}
template <int kCount>
__device__ __forceinline__ void pin(float (&sums)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) asm volatile("" : "+f"(sums[i])::"memory");
}

// The names of asm operands %0 to %(n - 1), which are the accumulators, and their list.
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

// Adds to the sums or, if `add` is 0, begins them. `a`, `b` and `p` are the numbers of the asm
// operands behind the sums: two descriptors and `add`.
#define PLANQ_WGMMA_CODES(columns, count, a, b, p, types)                    \
  asm volatile("{.reg .pred p; setp.ne.b32 p, %" #p                          \
               ", 0;"                                                        \
               "wgmma.mma_async.sync.aligned.m64n" #columns "k32.s32." types \
               " {" PLANQ_NAMES_##count "}, %" #a ", %" #b ", p;}"           \
               : PLANQ_SUMS_##count(sums, 0)                                 \
               : "l"(first), "l"(second), "r"(add))
#define PLANQ_WGMMA_CODES_OF_TYPES(columns, count, a, b, p) \
  if constexpr (kColumns == columns) {                      \
    if constexpr (!kFirstUnsigned && !kSecondUnsigned)      \
      PLANQ_WGMMA_CODES(columns, count, a, b, p, "s8.s8");  \
    else if constexpr (kFirstUnsigned && !kSecondUnsigned)  \
      PLANQ_WGMMA_CODES(columns, count, a, b, p, "u8.s8");  \
    else if constexpr (!kFirstUnsigned && kSecondUnsigned)  \
      PLANQ_WGMMA_CODES(columns, count, a, b, p, "s8.u8");  \
    else                                                    \
      PLANQ_WGMMA_CODES(columns, count, a, b, p, "u8.u8");  \
  }

// Multiplies 64 rows of the first operand by kColumns rows of the second, over 32 bytes of each.
// Thread t has row r = t / 32 * 16 + t % 32 / 4 and row r + 8. Sums 4 j and 4 j + 1 belong to row
// r, at columns 8 j + t % 4 * 2 and the next; sums 4 j + 2 and 4 j + 3 are those of row r + 8.
template <bool kFirstUnsigned, bool kSecondUnsigned, int kColumns>
__device__ __forceinline__ void wgmma_add_codes(int (&sums)[kColumns / 2], std::uint64_t first,
                                                std::uint64_t second, int add) {
  PLANQ_WGMMA_CODES_OF_TYPES(16, 8, 8, 9, 10)
  PLANQ_WGMMA_CODES_OF_TYPES(32, 16, 16, 17, 18)
  PLANQ_WGMMA_CODES_OF_TYPES(64, 32, 32, 33, 34)
  PLANQ_WGMMA_CODES_OF_TYPES(128, 64, 64, 65, 66)
  PLANQ_WGMMA_CODES_OF_TYPES(256, 128, 128, 129, 130)
}
// The formats of 8-bit floating codes, as types.
struct E4M3 {
  std::uint8_t code;
};
struct E5M2 {
  std::uint8_t code;
};
// 16-bit numbers in a transposed operand.
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

// The same for floating numbers of types A and B, of which 32 bytes are multiplied. The arithmetic
// is one step of math/tensor_core.h for each sum. Only 16-bit numbers may be transposed: then `lie`
// is PLANQ_EITHER_WAY, and asm operands x and y say which operands are.
#define PLANQ_EITHER_WAY(x, y) ", %" #x ", %" #y
#define PLANQ_ONE_WAY(x, y) ""
#define PLANQ_WGMMA_FLOATS(columns, count, a, b, p, x, y, types, lie)                      \
  asm volatile("{.reg .pred p; setp.ne.b32 p, %" #p                                        \
               ", 0;"                                                                      \
               "wgmma.mma_async.sync.aligned.m64n" #columns types " {" PLANQ_NAMES_##count \
               "}, %" #a ", %" #b ", p, 1, 1" lie(x, y) ";}"                               \
               : PLANQ_FLOATS_##count(sums, 0)                                             \
               : "l"(first), "l"(second), "r"(add), "n"(static_cast<int>(kTransposed<A>)), \
                 "n"(static_cast<int>(kTransposed<B>)))
#define PLANQ_WGMMA_FLOATS_OF_COLUMNS(types, lie)               \
  if constexpr (kColumns == 16)                                 \
    PLANQ_WGMMA_FLOATS(16, 8, 8, 9, 10, 11, 12, types, lie);    \
  else if constexpr (kColumns == 32)                            \
    PLANQ_WGMMA_FLOATS(32, 16, 16, 17, 18, 19, 20, types, lie); \
  else if constexpr (kColumns == 64)                            \
    PLANQ_WGMMA_FLOATS(64, 32, 32, 33, 34, 35, 36, types, lie); \
  else                                                          \
    PLANQ_WGMMA_FLOATS(128, 64, 64, 65, 66, 67, 68, types, lie)
template <class A, class B, int kSums>
__device__ __forceinline__ void wgmma_add_floats(float (&sums)[kSums], std::uint64_t first,
                                                 std::uint64_t second, int add) {
  constexpr int kColumns = 2 * kSums;
  static_assert(kColumns == 16 || kColumns == 32 || kColumns == 64 || kColumns == 128);
  using Number = typename NumberOf<A>::Type;
  if constexpr (std::is_same_v<Number, math::Half>) {
    PLANQ_WGMMA_FLOATS_OF_COLUMNS("k16.f32.f16.f16", PLANQ_EITHER_WAY);
  } else if constexpr (std::is_same_v<Number, math::Bfloat16>) {
    PLANQ_WGMMA_FLOATS_OF_COLUMNS("k16.f32.bf16.bf16", PLANQ_EITHER_WAY);
  } else if constexpr (std::is_same_v<A, E4M3> && std::is_same_v<B, E4M3>) {
    PLANQ_WGMMA_FLOATS_OF_COLUMNS("k32.f32.e4m3.e4m3", PLANQ_ONE_WAY);
  } else if constexpr (std::is_same_v<A, E4M3>) {
    PLANQ_WGMMA_FLOATS_OF_COLUMNS("k32.f32.e4m3.e5m2", PLANQ_ONE_WAY);
  } else if constexpr (std::is_same_v<B, E4M3>) {
    PLANQ_WGMMA_FLOATS_OF_COLUMNS("k32.f32.e5m2.e4m3", PLANQ_ONE_WAY);
  } else {
    PLANQ_WGMMA_FLOATS_OF_COLUMNS("k32.f32.e5m2.e5m2", PLANQ_ONE_WAY);
  }
}

// The same for 16-bit numbers with the first operand in registers. These must not change before
// wgmma_wait(). A warp has 16 rows of it. With g = l / 4 and t = l % 4, lane l has
//   first[0], first[1]  terms 2t and 2t + 1 of rows g and g + 8
//   first[2], first[3]  the same eight terms further
// Second: the type, as above; where it is Transposed, terms of the second operand lie one after
// another.
#define PLANQ_WGMMA_HELD(columns, count, sums_are, a0, a1, a2, a3, b, p, type, turned)      \
  asm volatile("{.reg .pred p; setp.ne.b32 p, %" #p                                         \
               ", 0;"                                                                       \
               "wgmma.mma_async.sync.aligned.m64n" #columns "k16.f32." type "." type        \
               " {" PLANQ_NAMES_##count "}, {%" #a0 ", %" #a1 ", %" #a2 ", %" #a3 "}, %" #b \
                                        ", p, 1, 1, " turned ";}"                           \
               : PLANQ_##sums_are##_##count(sums, 0)                                        \
               : "r"(first[0]), "r"(first[1]), "r"(first[2]), "r"(first[3]), "l"(second),   \
                 "r"(add))
#define PLANQ_WGMMA_HELD_OF_COLUMNS(type, turned)                           \
  if constexpr (kSums == 4)                                                 \
    PLANQ_WGMMA_HELD(8, 4, FLOATS, 4, 5, 6, 7, 8, 9, type, turned);         \
  else if constexpr (kSums == 8)                                            \
    PLANQ_WGMMA_HELD(16, 8, FLOATS, 8, 9, 10, 11, 12, 13, type, turned);    \
  else if constexpr (kSums == 16)                                           \
    PLANQ_WGMMA_HELD(32, 16, FLOATS, 16, 17, 18, 19, 20, 21, type, turned); \
  else if constexpr (kSums == 32)                                           \
    PLANQ_WGMMA_HELD(64, 32, FLOATS, 32, 33, 34, 35, 36, 37, type, turned); \
  else                                                                      \
    PLANQ_WGMMA_HELD(128, 64, FLOATS, 64, 65, 66, 67, 68, 69, type, turned)
template <class Second, int kSums>
__device__ __forceinline__ void wgmma_add_held(float (&sums)[kSums],
                                               const std::uint32_t (&first)[4],
                                               std::uint64_t second, int add) {
  static_assert(kSums == 4 || kSums == 8 || kSums == 16 || kSums == 32 || kSums == 64);
  constexpr bool kHalf = std::is_same_v<typename NumberOf<Second>::Type, math::Half>;
  if constexpr (kHalf && kTransposed<Second>) {
    PLANQ_WGMMA_HELD_OF_COLUMNS("f16", "1");
  } else if constexpr (kHalf) {
    PLANQ_WGMMA_HELD_OF_COLUMNS("f16", "0");
  } else if constexpr (kTransposed<Second>) {
    PLANQ_WGMMA_HELD_OF_COLUMNS("bf16", "1");
  } else {
    PLANQ_WGMMA_HELD_OF_COLUMNS("bf16", "0");
  }
}

// The same with 128 rows of the second operand. Sums are float32 in registers of integers.
template <class T>
__device__ __forceinline__ void wgmma_add_held(int (&sums)[64], const std::uint32_t (&first)[4],
                                               std::uint64_t second) {
  constexpr int add = 1;
  if constexpr (std::is_same_v<T, math::Half>)
    PLANQ_WGMMA_HELD(128, 64, SUMS, 64, 65, 66, 67, 68, 69, "f16", "0");
  else
    PLANQ_WGMMA_HELD(128, 64, SUMS, 64, 65, 66, 67, 68, 69, "bf16", "0");
}

#undef PLANQ_WGMMA_HELD_OF_COLUMNS
#undef PLANQ_WGMMA_HELD
#undef PLANQ_WGMMA_FLOATS_OF_COLUMNS
#undef PLANQ_WGMMA_FLOATS
#undef PLANQ_ONE_WAY
#undef PLANQ_EITHER_WAY
#undef PLANQ_WGMMA_CODES_OF_TYPES
#undef PLANQ_WGMMA_CODES
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

// Sets how many registers each thread of this warpgroup may use from here on, fewer or more than
// before. All four warps call it.
template <int kRegisters>
__device__ __forceinline__ void lower_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}
template <int kRegisters>
__device__ __forceinline__ void raise_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

}  // namespace planq::cuda
