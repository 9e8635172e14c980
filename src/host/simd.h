// Instruction sets. Kernels are plain loops that compilers vectorise; a file of them is included
// once per level, between PLANQ_SIMD_<LEVEL>_BEGIN and PLANQ_SIMD_END, and the level is chosen at
// run time. Bits never depend on the level, since every operation in those loops is exact or one
// IEEE operation.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string_view>

#if defined(__x86_64__)
#include <immintrin.h>
#define PLANQ_SIMD_X86 1
#else
#define PLANQ_SIMD_X86 0
#endif

#define PLANQ_SIMD_AVX2 "avx2,fma,f16c"
#define PLANQ_SIMD_AVX512 "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq"
#define PLANQ_SIMD_VNNI "avx512vnni"
#define PLANQ_SIMD_PRAGMA(text) _Pragma(#text)
#if defined(__clang__)
#define PLANQ_SIMD_BEGIN(features) \
  PLANQ_SIMD_PRAGMA(clang attribute push(__attribute__((target(features))), apply_to = function))
#define PLANQ_SIMD_END _Pragma("clang attribute pop")
#define PLANQ_SIMD_AVX512_BEGIN PLANQ_SIMD_BEGIN(PLANQ_SIMD_AVX512)
#define PLANQ_SIMD_AVX512_VNNI_BEGIN PLANQ_SIMD_BEGIN(PLANQ_SIMD_AVX512 "," PLANQ_SIMD_VNNI)
#else
#define PLANQ_SIMD_BEGIN(...) _Pragma("GCC push_options") PLANQ_SIMD_PRAGMA(GCC target(__VA_ARGS__))
#define PLANQ_SIMD_END _Pragma("GCC pop_options")
#define PLANQ_SIMD_AVX512_BEGIN PLANQ_SIMD_BEGIN(PLANQ_SIMD_AVX512, "prefer-vector-width=512")
#define PLANQ_SIMD_AVX512_VNNI_BEGIN \
  PLANQ_SIMD_BEGIN(PLANQ_SIMD_AVX512, PLANQ_SIMD_VNNI, "prefer-vector-width=512")
#endif
#define PLANQ_SIMD_AVX2_BEGIN PLANQ_SIMD_BEGIN(PLANQ_SIMD_AVX2)

namespace planq::host {

enum class Level : int { Baseline, Avx2, Avx512 };

// Names of what kernels may use, from narrow to wide: first the levels, then what is added to the
// last of them.
inline constexpr std::array<std::string_view, 5> kInstructionSets = {"baseline", "avx2", "avx512",
                                                                     "avx512_vnni", "amx"};

// The place of the widest one that PLANQ_INSTRUCTION_SET lets this process use: an audit holds each
// to the bits of the others. A name that there is not means the first, which is never wrong.
inline std::size_t widest_allowed() {
  static const std::size_t widest = [] {
    const char* const asked = std::getenv("PLANQ_INSTRUCTION_SET");
    if (!asked || !*asked) return kInstructionSets.size() - 1;
    std::size_t place = kInstructionSets.size() - 1;
    while (place > 0 && kInstructionSets[place] != asked) --place;
    return place;
  }();
  return widest;
}
inline bool allows(Level level) { return static_cast<std::size_t>(level) <= widest_allowed(); }

// The widest level that this processor has and that is allowed; a build may be limited, too.
inline Level detect_level() {
#if defined(PLANQ_SIMD_LIMIT) && PLANQ_SIMD_LIMIT == 0
  return Level::Baseline;
#elif PLANQ_SIMD_X86
  __builtin_cpu_init();
#if !defined(PLANQ_SIMD_LIMIT)
  if (allows(Level::Avx512) && __builtin_cpu_supports("avx512f") &&
      __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
      __builtin_cpu_supports("avx512dq"))
    return Level::Avx512;
#endif
  if (allows(Level::Avx2) && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
      __builtin_cpu_supports("f16c"))
    return Level::Avx2;
#endif
  return Level::Baseline;
}

// Whether a processor of level Avx512 also adds products of bytes to int32 sums.
inline bool has_vnni() {
#if PLANQ_SIMD_X86
  return widest_allowed() >= 3 && detect_level() == Level::Avx512 &&
         __builtin_cpu_supports("avx512vnni");
#else
  return false;
#endif
}

// Tells the core that this is a waiting loop.
inline void relax() {
#if PLANQ_SIMD_X86
  _mm_pause();
#elif defined(__aarch64__)
  __asm__ __volatile__("yield");
#endif
}

// Rounds to nearest and keeps subnormals while it lives, whatever the calling thread had set: a
// program that flushes subnormals elsewhere must not change the bits here.
class StrictFloat {
 public:
#if PLANQ_SIMD_X86
  StrictFloat() : saved_(_mm_getcsr()) {
    if ((saved_ & kControl) != kStrict) _mm_setcsr(kStrict);
  }
  ~StrictFloat() {
    if ((saved_ & kControl) != kStrict) _mm_setcsr(saved_);
  }

 private:
  static constexpr unsigned kControl = 0xFFC0, kStrict = 0x1F80;
  unsigned saved_;
#elif defined(__aarch64__)
  StrictFloat() {
    __asm__ __volatile__("mrs %0, fpcr" : "=r"(saved_));
    if (saved_ != 0) __asm__ __volatile__("msr fpcr, %0" : : "r"(std::uint64_t{0}));
  }
  ~StrictFloat() {
    if (saved_ != 0) __asm__ __volatile__("msr fpcr, %0" : : "r"(saved_));
  }

 private:
  std::uint64_t saved_ = 0;
#else
  StrictFloat() {}
#endif

 public:
  StrictFloat(const StrictFloat&) = delete;
  StrictFloat& operator=(const StrictFloat&) = delete;
};

// Copies with streaming stores, which bypass the caches, in steps of 16 bytes from an aligned
// address on. Callers end with stream_fence().
inline void stream_copy(void* to, const void* from, std::size_t bytes) {
  auto* target = static_cast<unsigned char*>(to);
  auto* source = static_cast<const unsigned char*>(from);
#if PLANQ_SIMD_X86
  const std::size_t before = -reinterpret_cast<std::uintptr_t>(to) & 15;
  if (bytes >= before + 16) {
    std::memcpy(target, source, before);
    std::size_t at = before;
    for (; at + 16 <= bytes; at += 16)
      _mm_stream_si128(reinterpret_cast<__m128i*>(target + at),
                       _mm_loadu_si128(reinterpret_cast<const __m128i*>(source + at)));
    target += at;
    source += at;
    bytes -= at;
  }
#endif
  std::memcpy(target, source, bytes);
}

// Orders streaming stores before later ones; needed before another thread may read the memory.
inline void stream_fence() {
#if PLANQ_SIMD_X86
  _mm_sfence();
#endif
}

}  // namespace planq::host
