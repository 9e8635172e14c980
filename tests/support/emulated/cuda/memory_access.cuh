// In the place of src/cuda/memory_access.cuh: words of CUDA's language, and accesses that have to
// be aligned as a GPU wants them.
#pragma once

#include <algorithm>
#include <bit>
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

struct char4 {
  char x, y, z, w;
};

struct alignas(8) float2 {
  float x, y;
};
inline float2 make_float2(float x, float y) { return {x, y}; }
struct alignas(16) float4 {
  float x, y, z, w;
};
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }

inline std::uint32_t __float_as_uint(float x) { return std::bit_cast<std::uint32_t>(x); }
inline std::int32_t __float_as_int(float x) { return std::bit_cast<std::int32_t>(x); }
inline float __uint_as_float(std::uint32_t x) { return std::bit_cast<float>(x); }
inline float __int_as_float(std::int32_t x) { return std::bit_cast<float>(x); }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fmaf_rn(float a, float b, float c) { return std::fma(a, b, c); }
inline float __fadd_rn(float a, float b) { return a + b; }
inline double __dmul_rn(double a, double b) { return a * b; }
inline double __dadd_rn(double a, double b) { return a + b; }
inline double __fma_rn(double a, double b, double c) { return std::fma(a, b, c); }
inline int __double2loint(double x) { return static_cast<int>(std::bit_cast<std::uint64_t>(x)); }
inline int __double2hiint(double x) {
  return static_cast<int>(std::bit_cast<std::uint64_t>(x) >> 32);
}
inline float __double2float_rz(double x) {
  const auto near = static_cast<float>(x);
  return std::fabs(near) > std::fabs(x) ? std::nextafter(near, 0.0f) : near;
}
inline float __saturatef(float x) { return x > 0 ? std::min(x, 1.0f) : 0.0f; }
inline std::uint32_t __umulhi(std::uint32_t a, std::uint32_t b) {
  return static_cast<std::uint32_t>(std::uint64_t{a} * b >> 32);
}
inline std::uint32_t __vmaxu2(std::uint32_t a, std::uint32_t b) {
  return std::max(a >> 16, b >> 16) << 16 | std::max(a & 0xFFFFu, b & 0xFFFFu);
}
template <class Better>
std::uint32_t of_signed_halves(std::uint32_t a, std::uint32_t b, const Better& better) {
  std::uint32_t result = 0;
  for (unsigned i = 0; i < 32; i += 16) {
    const auto own = better(static_cast<std::int16_t>(a >> i), static_cast<std::int16_t>(b >> i));
    result |= static_cast<std::uint32_t>(static_cast<std::uint16_t>(own)) << i;
  }
  return result;
}
inline std::uint32_t __vmaxs2(std::uint32_t a, std::uint32_t b) {
  return of_signed_halves(a, b, [](std::int16_t x, std::int16_t y) { return std::max(x, y); });
}
inline int __popc(unsigned bits) { return std::popcount(bits); }
inline std::uint32_t __vmins2(std::uint32_t a, std::uint32_t b) {
  return of_signed_halves(a, b, [](std::int16_t x, std::int16_t y) { return std::min(x, y); });
}
inline double __hiloint2double(int high, int low) {
  return std::bit_cast<double>(std::uint64_t{static_cast<std::uint32_t>(high)} << 32 |
                               static_cast<std::uint32_t>(low));
}
inline std::uint32_t __byte_perm(std::uint32_t a, std::uint32_t b, std::uint32_t selectors) {
  const std::uint64_t bytes = std::uint64_t{b} << 32 | a;
  std::uint32_t result = 0;
  for (unsigned i = 0; i < 4; ++i)
    result |= static_cast<std::uint32_t>(bytes >> 8 * (selectors >> 4 * i & 7) & 255) << 8 * i;
  return result;
}
inline int __dp4a(int a, int b, int sum) {
  for (int i = 0; i < 32; i += 8)
    sum += static_cast<std::int8_t>(a >> i) * static_cast<std::int8_t>(b >> i);
  return sum;
}
inline std::uint32_t __funnelshift_r(std::uint32_t low, std::uint32_t high, unsigned by) {
  return static_cast<std::uint32_t>((std::uint64_t{high} << 32 | low) >> by % 32);
}
template <class T>
T __ldg(const T* address) {
  if (reinterpret_cast<std::uintptr_t>(address) % sizeof(T) != 0) std::abort();
  return *address;
}
template <class T>
T atomicMax(T* address, T value) {
  const T before = *address;
  *address = std::max(before, value);
  return before;
}
template <class T>
T atomicOr(T* address, T value) {
  const T before = *address;
  *address = before | value;
  return before;
}
template <class T>
T atomicCAS(T* address, T expected, T value) {
  const T before = *address;
  if (before == expected) *address = value;
  return before;
}
template <class T>
T atomicAdd(T* address, T value) {
  const T before = *address;
  *address = before + value;
  return before;
}
inline std::size_t __cvta_generic_to_shared(const void* address) {
  return reinterpret_cast<std::size_t>(address);
}

inline void __syncthreads() { emulated::Block::current().wait_for_block(); }
inline int __syncthreads_count(bool counts) { return emulated::Block::current().count(counts); }
inline int __syncthreads_or(bool holds) { return __syncthreads_count(holds) > 0; }
inline void __syncwarp() { emulated::Block::current().wait_for_warp(); }
template <class T>
T __shfl_sync(unsigned, T value, int lane, int width = 32) {
  static_assert(sizeof(T) % 4 == 0);
  const int own = static_cast<int>(emulated::Block::current().lane());
  const auto from = static_cast<unsigned>(own / width * width + lane % width);
  std::uint32_t words[sizeof(T) / 4];
  std::memcpy(words, &value, sizeof value);
  for (std::uint32_t& word : words) word = emulated::Block::current().exchange(word, from);
  std::memcpy(&value, words, sizeof value);
  return value;
}
template <class T>
T __shfl_xor_sync(unsigned lanes, T value, int mask) {
  const int own = static_cast<int>(emulated::Block::current().lane());
  return __shfl_sync(lanes, value, own ^ mask);
}
template <class T>
T __shfl_down_sync(unsigned lanes, T value, int by) {
  const int own = static_cast<int>(emulated::Block::current().lane());
  return __shfl_sync(lanes, value, own + by < 32 ? own + by : own);
}
template <class T>
T __shfl_up_sync(unsigned lanes, T value, int by, int width = 32) {
  const int own = static_cast<int>(emulated::Block::current().lane());
  return __shfl_sync(lanes, value, own % width >= by ? own - by : own);
}
template <class T>
T __reduce_max_sync(unsigned, T value) {
  const std::uint32_t own[1] = {std::bit_cast<std::uint32_t>(value)};
  std::uint32_t given[1][32];
  emulated::Block::current().exchange(own, given);
  for (const std::uint32_t each : given[0]) value = std::max(value, std::bit_cast<T>(each));
  return value;
}
inline int __reduce_add_sync(unsigned, int value) {
  const std::uint32_t own[1] = {static_cast<std::uint32_t>(value)};
  std::uint32_t given[1][32];
  emulated::Block::current().exchange(own, given);
  std::uint32_t sum = 0;
  for (const std::uint32_t each : given[0]) sum += each;
  return static_cast<int>(sum);
}
inline bool __all_sync(unsigned lanes, bool holds) {
  return __reduce_max_sync(lanes, holds ? 0u : 1u) == 0;
}

inline bool __any_sync(unsigned lanes, bool holds) {
  return __reduce_max_sync(lanes, holds ? 1u : 0u) != 0;
}

namespace planq::cuda {

inline constexpr int kVectorBytes = 16, kWarp = 32;
inline constexpr unsigned kAllLanes = 0xFFFFFFFFu;

template <int kBytes>
using Word = std::conditional_t<
    kBytes == 8, std::uint64_t,
    std::conditional_t<kBytes == 4, std::uint32_t,
                       std::conditional_t<kBytes == 2, std::uint16_t, std::uint8_t>>>;

// The shared memory of a launch: more than any asks for.
inline void* dynamic_shared() {
  // As on sm_90, where the first kilobyte of shared memory is the system's.
  alignas(64 << 10) static unsigned char memory[256 << 10];
  return memory + 1024;
}
using SharedAddress = std::uintptr_t;
inline SharedAddress shared_address_of(const void* place) {
  return reinterpret_cast<SharedAddress>(place);
}
inline float2 load_shared_pair(SharedAddress address) {
  return *reinterpret_cast<const float2*>(address);
}
// What is at an address in shared memory, which has to be aligned.
template <class T>
T at_shared(SharedAddress address) {
  if (address % sizeof(T) != 0) std::abort();
  return *reinterpret_cast<const T*>(address);
}
inline std::uint32_t read_shared_byte(SharedAddress from) { return at_shared<std::uint8_t>(from); }
inline std::uint32_t read_shared_half(SharedAddress from) { return at_shared<std::uint16_t>(from); }
inline std::uint32_t read_shared_word(SharedAddress from) { return at_shared<std::uint32_t>(from); }
inline uint2 read_shared_words(SharedAddress from) { return at_shared<uint2>(from); }
inline uint4 load_shared_vector(SharedAddress from) { return at_shared<uint4>(from); }
inline const void* pointer_to_shared(SharedAddress address) {
  return reinterpret_cast<const void*>(address);
}
inline void store_shared_byte(SharedAddress address, std::uint8_t byte) {
  *reinterpret_cast<std::uint8_t*>(address) = byte;
}
inline void store_shared_float(SharedAddress address, float x) {
  if (address % sizeof x != 0) std::abort();
  *reinterpret_cast<float*>(address) = x;
}
inline void keep(std::uint32_t&) {}
inline void keep(SharedAddress&) {}

inline bool aligned_to(const void* address, int bytes) {
  return reinterpret_cast<std::uintptr_t>(address) % static_cast<unsigned>(bytes) == 0;
}
template <int kBytes>
int misalignment(const void* address) {
  return static_cast<int>(reinterpret_cast<std::uintptr_t>(address) % kBytes);
}
inline uint4 load_past_l1(const void* address) { return *static_cast<const uint4*>(address); }
inline void prefetch(const void*) {}
inline void prefetch_near(const void*) {}
inline uint4 load_once(const void* address) {
  if (!aligned_to(address, kVectorBytes)) std::abort();
  uint4 vector;
  std::memcpy(&vector, address, sizeof vector);
  return vector;
}
inline uint4 load_kept(const void* address) { return load_once(address); }
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
template <int kBytes>
void store_word(std::uint8_t* address, Word<kBytes> word) {
  store_once(reinterpret_cast<Word<kBytes>*>(address), word);
}
inline void store_kept(void* address, const uint4& vector) {
  if (!aligned_to(address, kVectorBytes)) std::abort();
  std::memcpy(address, &vector, sizeof vector);
}

// Copies are over at once.
inline void copy_once(void* shared, const void* address) { store_kept(shared, load_once(address)); }
inline void wait_for_copies() {}

inline void store_vector(void* address, const uint4& vector) { store_kept(address, vector); }

}  // namespace planq::cuda
