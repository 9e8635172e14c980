// In the place of src/cuda/memory_access.cuh: words of CUDA's language, and accesses that have to
// be aligned as a GPU wants them.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "block.h"

#define __device__
#define __global__
#define __forceinline__ inline
#define __noinline__
#define __launch_bounds__(...)
#define __grid_constant__
#define __shared__ static

using std::max;
using std::min;

struct alignas(16) uint4 {
  unsigned x, y, z, w;
};

struct alignas(8) uint2 {
  unsigned x, y;
};
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }
inline uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }

inline void __syncthreads() { emulated::Block::current().wait_for_block(); }
inline void __syncwarp() { emulated::Block::current().wait_for_warp(); }
inline float __shfl_sync(unsigned, float value, int lane) {
  std::uint32_t word;
  std::memcpy(&word, &value, sizeof word);
  word = emulated::Block::current().exchange(word, static_cast<unsigned>(lane));
  std::memcpy(&value, &word, sizeof word);
  return value;
}
inline std::uint32_t __shfl_sync(unsigned, std::uint32_t word, int lane) {
  return emulated::Block::current().exchange(word, static_cast<unsigned>(lane));
}
// Lane `lane` of those, `width` in number, among which the caller is.
template <class T>
T __shfl_sync(unsigned lanes, T value, int lane, int width) {
  const int own = static_cast<int>(emulated::Block::current().lane());
  return __shfl_sync(lanes, value, (own & -width) + lane);
}
template <class T>
T __shfl_xor_sync(unsigned lanes, T value, int mask) {
  const int own = static_cast<int>(emulated::Block::current().lane());
  return __shfl_sync(lanes, value, own ^ mask);
}
inline float __shfl_down_sync(unsigned lanes, float value, int by) {
  const int own = static_cast<int>(emulated::Block::current().lane());
  return __shfl_sync(lanes, value, own + by < 32 ? own + by : own);
}
inline float __fmaf_rn(float a, float b, float c) { return std::fma(a, b, c); }
inline std::uint32_t __byte_perm(std::uint32_t a, std::uint32_t b, std::uint32_t selectors) {
  const std::uint64_t bytes = std::uint64_t{b} << 32 | a;
  std::uint32_t result = 0;
  for (int i = 0; i < 4; ++i)
    result |= static_cast<std::uint32_t>(bytes >> 8 * (selectors >> 4 * i & 7) & 0xFF) << 8 * i;
  return result;
}
inline std::uint32_t __umulhi(std::uint32_t a, std::uint32_t b) {
  return static_cast<std::uint32_t>(std::uint64_t{a} * b >> 32);
}

namespace planq::cuda {

inline constexpr int kVectorBytes = 16, kWarp = 32;
inline constexpr unsigned kAllLanes = 0xFFFFFFFFu;

template <int kBytes>
using Word = std::conditional_t<
    kBytes == 8, std::uint64_t,
    std::conditional_t<kBytes == 4, std::uint32_t,
                       std::conditional_t<kBytes == 2, std::uint16_t, std::uint8_t>>>;

inline bool aligned_to(const void* address, int bytes) {
  return reinterpret_cast<std::uintptr_t>(address) % static_cast<unsigned>(bytes) == 0;
}
inline uint4 load_once(const void* address) {
  if (!aligned_to(address, kVectorBytes)) std::abort();
  uint4 vector;
  std::memcpy(&vector, address, sizeof vector);
  return vector;
}
template <class T>
T load_single(const T* address) {
  if (!aligned_to(address, sizeof(T))) std::abort();
  return *address;
}
template <class T>
void store_once(T* address, T word) {
  if (!aligned_to(address, sizeof(T))) std::abort();
  *address = word;
}
template <class T>
void store_single(T* address, T value) {
  store_once(address, value);
}
inline void store_kept(void* address, const uint4& vector) {
  if (!aligned_to(address, kVectorBytes)) std::abort();
  std::memcpy(address, &vector, sizeof vector);
}

inline void store_vector(void* address, const uint4& vector) { store_kept(address, vector); }

}  // namespace planq::cuda
