// Memory access of the kernels: 16-byte vectors in, words of codes out. A word need not be aligned
// in the output; store_unaligned() then moves bytes between lanes so that the stores are.
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>

namespace planq::cuda {

inline constexpr int kVectorBytes = 16;
inline constexpr int kWarp = 32;
inline constexpr unsigned kAllLanes = 0xFFFFFFFFu;

// An address in shared memory, whose bits may be made of parts.
using SharedAddress = std::uint32_t;
__device__ __forceinline__ SharedAddress shared_address_of(const void* place) {
  return static_cast<SharedAddress>(__cvta_generic_to_shared(place));
}
__device__ __forceinline__ std::uint32_t load_shared_word(SharedAddress address) {
  std::uint32_t word;
  asm volatile("ld.shared.u32 %0, [%1];" : "=r"(word) : "r"(address));
  return word;
}
__device__ __forceinline__ uint4 load_shared_vector(SharedAddress address) {
  uint4 v;
  asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "r"(address));
  return v;
}
__device__ __forceinline__ float2 load_shared_pair(SharedAddress address) {
  float2 pair;
  asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];" : "=f"(pair.x), "=f"(pair.y) : "r"(address));
  return pair;
}

__device__ __forceinline__ uint2 load_shared_words(SharedAddress address) {
  uint2 words;
  asm volatile("ld.shared.v2.u32 {%0, %1}, [%2];"
               : "=r"(words.x), "=r"(words.y)
               : "r"(address)
               : "memory");
  return words;
}

__device__ __forceinline__ void store_shared_byte(SharedAddress address, std::uint8_t byte) {
  asm volatile("st.shared.u8 [%0], %1;" ::"r"(address), "r"(std::uint32_t{byte}) : "memory");
}
__device__ __forceinline__ void store_shared_float(SharedAddress address, float x) {
  asm volatile("st.shared.f32 [%0], %1;" ::"r"(address), "f"(x) : "memory");
}

// Loads that the compiler may do earlier or later, or once where they are written twice: of memory
// that nobody writes between keep() of the address and the last use of what was read.
__device__ __forceinline__ std::uint32_t read_shared_byte(SharedAddress address) {
  std::uint32_t byte;
  asm("ld.shared.u8 %0, [%1];" : "=r"(byte) : "r"(address));
  return byte;
}
__device__ __forceinline__ std::uint32_t read_shared_half(SharedAddress address) {
  std::uint16_t half;
  asm("ld.shared.u16 %0, [%1];" : "=h"(half) : "r"(address));
  return half;
}
__device__ __forceinline__ std::uint32_t read_shared_word(SharedAddress address) {
  std::uint32_t word;
  asm("ld.shared.u32 %0, [%1];" : "=r"(word) : "r"(address));
  return word;
}
__device__ __forceinline__ uint2 read_shared_words(SharedAddress address) {
  uint2 words;
  asm("ld.shared.v2.u32 {%0, %1}, [%2];" : "=r"(words.x), "=r"(words.y) : "r"(address));
  return words;
}
__device__ __forceinline__ uint4 read_shared_vector(SharedAddress address) {
  uint4 v;
  asm("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
      : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
      : "r"(address));
  return v;
}
__device__ __forceinline__ const void* pointer_to_shared(SharedAddress address) {
  return reinterpret_cast<const void*>(__cvta_shared_to_generic(address));
}

// Keeps a value in its register, where the compiler would work it out again at each use.
__device__ __forceinline__ void keep(std::uint32_t& value) { asm volatile("" : "+r"(value)); }

// The unsigned type of 1, 2, 4 or 8 bytes.
template <int kBytes>
using Word = std::conditional_t<
    kBytes == 8, std::uint64_t,
    std::conditional_t<kBytes == 4, std::uint32_t,
                       std::conditional_t<kBytes == 2, std::uint16_t, std::uint8_t>>>;

// The address modulo kBytes: by how many bytes a word of that size is misaligned there.
template <int kBytes>
__device__ __forceinline__ int misalignment(const void* address) {
  return static_cast<int>(reinterpret_cast<std::uintptr_t>(address) % kBytes);
}

// The shared memory that a launch asks for.
__device__ __forceinline__ void* dynamic_shared() {
  extern __shared__ __align__(16) unsigned char dynamic_memory[];
  return dynamic_memory;
}

// Brings the line of an address to L2.
__device__ __forceinline__ void prefetch(const void* address) {
  asm volatile("prefetch.global.L2 [%0];" ::"l"(address));
}
// And to the L1 cache of this block's multiprocessor.
__device__ __forceinline__ void prefetch_near(const void* address) {
  asm volatile("prefetch.global.L1 [%0];" ::"l"(address));
}

// Loads a vector that is read once, with the hint to evict it first (.cs). `volatile` keeps the
// compiler from moving the loads of a batch apart.
__device__ __forceinline__ uint4 load_once(const void* address) {
  uint4 v;
  asm volatile("ld.global.cs.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(address));
  return v;
}

// Loads one element of 2, 4 or 8 bytes with the same hint.
template <class T>
__device__ __forceinline__ T load_single(const T* address) {
  T value;
  if constexpr (sizeof(T) == 8) {
    const auto bits = __ldcs(reinterpret_cast<const unsigned long long*>(address));
    memcpy(&value, &bits, sizeof value);
  } else {
    const auto bits = __ldcs(reinterpret_cast<const Word<sizeof(T)>*>(address));
    memcpy(&value, &bits, sizeof value);
  }
  return value;
}

// A vector of elements that begins at any address. Its bytes lie in two aligned vectors. Where only
// one of these lies in memory that may be read, load() reads that one twice; vector() is then
// meaningless, and elements() reads the vector element by element.
struct UnalignedVector {
  uint4 first, second;

  __device__ __forceinline__ void load(const void* from, bool first_exists, bool second_exists) {
    const char* aligned = static_cast<const char*>(from) - misalignment<kVectorBytes>(from);
    first = load_once(aligned + (first_exists ? 0 : kVectorBytes));
    second = load_once(aligned + (second_exists ? kVectorBytes : 0));
  }
  // `past`: the address of the vector modulo 16, a multiple of 2.
  __device__ __forceinline__ uint4 vector(int past) const {
    const std::uint32_t bytes = past & 2 ? 0x5432u : 0x3210u;
    const auto cut = [&](std::uint32_t a, std::uint32_t b, std::uint32_t c, std::uint32_t d,
                         std::uint32_t e) {
      return make_uint4(__byte_perm(a, b, bytes), __byte_perm(b, c, bytes),
                        __byte_perm(c, d, bytes), __byte_perm(d, e, bytes));
    };
    const uint4 &a = first, &b = second;
    if (past < 8) return past < 4 ? cut(a.x, a.y, a.z, a.w, b.x) : cut(a.y, a.z, a.w, b.x, b.y);
    return past < 12 ? cut(a.z, a.w, b.x, b.y, b.z) : cut(a.w, b.x, b.y, b.z, b.w);
  }
  template <class T>
  __device__ __forceinline__ static uint4 elements(const T* from) {
    T each[kVectorBytes / sizeof(T)];
#pragma unroll
    for (unsigned i = 0; i < kVectorBytes / sizeof(T); ++i) each[i] = load_single(from + i);
    uint4 v;
    memcpy(&v, each, sizeof v);
    return v;
  }
};

// Loads a vector that a later pass reads again, so without that hint.
__device__ __forceinline__ uint4 load_kept(const void* address) {
  uint4 v;
  asm volatile("ld.global.nc.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(address));
  return v;
}

// Loads a vector that no other thread of the multiprocessor reads, past the cache that they share.
__device__ __forceinline__ uint4 load_past_l1(const void* address) {
  uint4 v;
  asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(address));
  return v;
}

// Copies a vector that is read once to shared memory, asynchronously.
__device__ __forceinline__ void copy_once(void* shared, const void* address) {
  const auto to = static_cast<std::uint32_t>(__cvta_generic_to_shared(shared));
  std::uint64_t policy;
  asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  asm volatile("cp.async.cg.shared.global.L2::cache_hint [%0], [%1], 16, %2;" ::"r"(to),
               "l"(address), "l"(policy)
               : "memory");
}
// Waits until all asynchronous copies of this thread are complete.
__device__ __forceinline__ void wait_for_copies() {
  asm volatile("cp.async.wait_all;" ::: "memory");
}
// The copies since the last call are a group.
__device__ __forceinline__ void end_copy_group() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}
// Waits until at most the last kGroups groups of this thread are under way.
template <int kGroups>
__device__ __forceinline__ void wait_for_copy_groups() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kGroups) : "memory");
}

// Stores with the hint to evict first (.cs), since outputs are not read again. Either all loads and
// stores of a kernel carry the hint or none: lines with it are evicted before all others, so the
// lines of a few accesses without it would fill the cache in the course of many launches, and those
// with it would be written to memory one at a time instead of in bursts of neighbours.
template <class T>
__device__ __forceinline__ void store_once(T* address, T word) {
  if constexpr (std::is_same_v<T, std::uint64_t>)
    __stcs(reinterpret_cast<unsigned long long*>(address), static_cast<unsigned long long>(word));
  else
    __stcs(address, word);
}
__device__ __forceinline__ void store_vector(void* address, const uint4& v) {
  __stcs(static_cast<uint4*>(address), v);
}
// The same for what is read again soon, so without that hint.
__device__ __forceinline__ void store_kept(void* address, const uint4& v) {
  asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(address), "r"(v.x), "r"(v.y),
               "r"(v.z), "r"(v.w)
               : "memory");
}
template <class T>
__device__ __forceinline__ void store_single(T* address, T value) {
  Word<sizeof(T)> bits;
  memcpy(&bits, &value, sizeof bits);
  store_once(reinterpret_cast<Word<sizeof(T)>*>(address), bits);
}
template <int kBytes>
__device__ __forceinline__ void store_word(std::uint8_t* address, Word<kBytes> word) {
  store_once(reinterpret_cast<Word<kBytes>*>(address), word);
}

// Lanes 0 to last of a set of `width` lanes hold the words of consecutive addresses, all past
// alignment by the same `shift` bytes. Every lane stores the aligned word that ends inside its own;
// the bytes before the first and after the last aligned word are stored one by one. The whole warp
// calls this; `address` is where the calling lane's word begins.
template <int kBytes>
__device__ __forceinline__ void store_unaligned(std::uint8_t* address, Word<kBytes> word, int shift,
                                                int lane, int last, int width) {
  using Wide = std::conditional_t<kBytes == 8, std::uint64_t, std::uint32_t>;
  const Wide wide = word;
  const Wide before = __shfl_up_sync(kAllLanes, wide, 1, width);
  const int owner = lane < kBytes - shift || last < 0 ? 0 : last;
  const Wide split = __shfl_sync(kAllLanes, wide, owner, width);
  if (shift == 0) {
    if (lane <= last) store_word<kBytes>(address, word);
    return;
  }
  if (lane > 0 && lane <= last)
    store_word<kBytes>(address - shift, static_cast<Word<kBytes>>(wide << 8 * shift |
                                                                  before >> 8 * (kBytes - shift)));
  if (lane < kBytes && last >= 0)
    store_once(address + (owner - lane) * kBytes + lane,
               static_cast<std::uint8_t>(split >> 8 * lane));
}

// The same for several sets of 32 words at consecutive addresses, which a warp stores one set after
// another: only the first and the last bytes of all sets together are stored one by one.
template <int kBytes>
class UnalignedStores {
 public:
  __device__ __forceinline__ UnalignedStores(int shift, int lane) : shift_(shift), lane_(lane) {}

  // `exists`: the lane has a word. `last`: its word is the last of all.
  __device__ __forceinline__ void store(std::uint8_t* address, Word<kBytes> word, bool exists,
                                        bool last) {
    const Wide wide = word;
    const Wide before =
        __shfl_sync(kAllLanes, lane_ == kWarp - 1 ? previous_ : wide, (lane_ + kWarp - 1) % kWarp);
    const Wide aligned =
        shift_ == 0 ? wide : (wide << 8 * shift_ | before >> 8 * (kBytes - shift_));
    if (first_) head_ = wide;
    if (last) tail_ = wide;
    if (exists && (!first_ || lane_ > 0 || shift_ == 0))
      store_word<kBytes>(address - shift_, static_cast<Word<kBytes>>(aligned));
    previous_ = wide;
    first_ = false;
  }
  // Stores the bytes at both ends. `first`, `last`: where the first and the last word begin;
  // `owner`: the lane that had the last one.
  __device__ __forceinline__ void finish(std::uint8_t* first, std::uint8_t* last, int owner) const {
    if (shift_ == 0) return;
    const Wide head = __shfl_sync(kAllLanes, head_, 0), tail = __shfl_sync(kAllLanes, tail_, owner);
    const bool at_head = lane_ < kBytes - shift_;
    if (lane_ < kBytes)
      store_once((at_head ? first : last) + lane_,
                 static_cast<std::uint8_t>((at_head ? head : tail) >> 8 * lane_));
  }

 private:
  using Wide = std::conditional_t<kBytes == 8, std::uint64_t, std::uint32_t>;

  Wide previous_ = 0, head_ = 0, tail_ = 0;
  int shift_, lane_;
  bool first_ = true;
};

}  // namespace planq::cuda
