// AMX, which multiplies matrices of bytes: eight registers of 16 rows, of 64 bytes each. The
// instructions are assembly: not every compiler has intrinsics for them, and those that there are
// need a target of their own.
#pragma once

#include "host/simd.h"

#if PLANQ_SIMD_X86 && defined(__linux__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#define PLANQ_SIMD_AMX 1
#else
#define PLANQ_SIMD_AMX 0
#endif

namespace planq::host {

// Rows of a matrix, and terms of its products that a register holds.
inline constexpr int kAmxRows = 16, kAmxTerms = 64;

#if PLANQ_SIMD_AMX

// Whether a processor with VNNI also has AMX for bytes, and the system lets this process use it.
// Linux saves the registers on the stack of a signal's handler. So a process has to ask for them
// first, and Linux refuses where such a stack is too small.
inline bool has_amx() {
  static const bool has = [] {
    constexpr unsigned kTiles = 1u << 24, kBytes = 1u << 25;
    constexpr long kRequestPermission = 0x1023, kTileData = 18;
    unsigned a = 0, b = 0, c = 0, d = 0;
    return widest_allowed() >= 4 && has_vnni() && __get_cpuid_count(7, 0, &a, &b, &c, &d) != 0 &&
           (d & kTiles) != 0 && (d & kBytes) != 0 &&
           syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
  }();
  return has;
}

// While it lives, the thread has all registers, in their largest shape. Before and after it has
// none.
class AmxRegisters {
 public:
  AmxRegisters() {
    Shapes shapes;
    for (int i = 0; i < 8; ++i) {
      shapes.row_bytes[i] = kAmxTerms;
      shapes.rows[i] = kAmxRows;
    }
    __asm__ volatile("ldtilecfg %0" : : "m"(shapes));
  }
  ~AmxRegisters() { __asm__ volatile("tilerelease"); }
  AmxRegisters(const AmxRegisters&) = delete;
  AmxRegisters& operator=(const AmxRegisters&) = delete;

 private:
  struct alignas(64) Shapes {
    std::uint8_t palette = 1, start = 0, reserved[14] = {};
    std::uint16_t row_bytes[16] = {};
    std::uint8_t rows[16] = {};
  };
  static_assert(sizeof(Shapes) == 64);
};

// Rows lie `pitch` bytes apart.
template <int kRegister>
inline void load_amx(const void* from, std::int64_t pitch) {
  __asm__ volatile("tileloadd (%0,%1,1), %%tmm%c2"
                   :
                   : "r"(from), "r"(pitch), "i"(kRegister)
                   : "memory");
}

template <int kRegister>
inline void store_amx(void* to, std::int64_t pitch) {
  __asm__ volatile("tilestored %%tmm%c2, (%0,%1,1)"
                   :
                   : "r"(to), "r"(pitch), "i"(kRegister)
                   : "memory");
}

// Adds products of bytes, one kind unsigned and the other signed, to sums of int32, modulo 2^32: a
// row of the input with 16 columns, whose words of four terms lie side by side.
template <bool kInputUnsigned, int kSums, int kInput, int kWeights>
inline void multiply_amx() {
  if constexpr (kInputUnsigned)
    __asm__ volatile("tdpbusd %%tmm%c2, %%tmm%c1, %%tmm%c0"
                     :
                     : "i"(kSums), "i"(kInput), "i"(kWeights));
  else
    __asm__ volatile("tdpbsud %%tmm%c2, %%tmm%c1, %%tmm%c0"
                     :
                     : "i"(kSums), "i"(kInput), "i"(kWeights));
}

#else
inline bool has_amx() { return false; }
#endif

}  // namespace planq::host
