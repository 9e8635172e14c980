// Neighbours of a row that a thread loads and stores together, and whether the rows of an operand
// lie in memory so that it may.
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "core/operands.h"
#include "cuda/launch.cuh"
#include "cuda/memory_access.cuh"
#include "cuda/pairs.cuh"

namespace planq::cuda {

// Neighbours as they lie in memory, a power of two of bytes: vectors, or a word of less than one.
// The compiler makes no halves of their words. Addresses are aligned to the bytes of all, or to a
// vector.
template <int kBytes>
struct Together {
  static constexpr int kWords = (kBytes + 3) / 4;
  std::uint32_t words[kWords];

  __device__ __forceinline__ void load(const void* from) {
    if constexpr (kBytes >= kVectorBytes) {
#pragma unroll
      for (int i = 0; i < kBytes / kVectorBytes; ++i)
        put_vector(i, static_cast<const uint4*>(from)[i]);
    } else {
      const Word<kBytes> word = *static_cast<const Word<kBytes>*>(from);
      memcpy(words, &word, sizeof word);
    }
  }
  // The same for one vector that is read once, before all loads that come later in the code.
  __device__ __forceinline__ void load_vector_once(const void* from) {
    static_assert(kBytes == kVectorBytes);
    put_vector(0, load_once(from));
  }
  __device__ __forceinline__ void store(void* to) const {
    if constexpr (kBytes >= kVectorBytes) {
#pragma unroll
      for (int i = 0; i < kBytes / kVectorBytes; ++i) static_cast<uint4*>(to)[i] = vector(i);
    } else {
      Word<kBytes> word;
      memcpy(&word, words, sizeof word);
      *static_cast<Word<kBytes>*>(to) = word;
    }
  }
  __device__ __forceinline__ uint4 vector(int i) const {
    return {words[4 * i], words[4 * i + 1], words[4 * i + 2], words[4 * i + 3]};
  }
  __device__ __forceinline__ void put_vector(int i, const uint4& v) {
    words[4 * i] = v.x, words[4 * i + 1] = v.y, words[4 * i + 2] = v.z, words[4 * i + 3] = v.w;
  }
};

// Elements, one by one.
template <class T, int kCount>
struct Neighbours {
  static constexpr int kBytes = kCount * static_cast<int>(sizeof(T));
  static constexpr int kAlignment = kBytes < kVectorBytes ? kBytes : kVectorBytes;

  T each[kCount];
  __device__ __forceinline__ void load(const T* from) {
    Together<kBytes> own;
    own.load(from);
    memcpy(each, own.words, sizeof each);
  }
  __device__ __forceinline__ void store(T* to) const {
    Together<kBytes> own;
    memcpy(own.words, each, sizeof each);
    own.store(to);
  }
};

// Numbers as they lie in memory, each rounded once: two of 16 bits, or one of 32, in a word. A NaN
// becomes the canonical one.
template <class T, int kCount, int kWords>
__device__ __forceinline__ void narrow_words(const float (&values)[kCount],
                                             std::uint32_t (&words)[kWords]) {
  static_assert(kWords == (kCount * static_cast<int>(sizeof(T)) + 3) / 4);
  if constexpr (sizeof(T) == 2) {
    // The conversion makes each NaN 0x7FFF, which as a signed integer is above all that is none.
    constexpr std::uint32_t kNaN = std::is_same_v<T, math::Half> ? 0x7E007E00u : 0x7FC07FC0u;
#pragma unroll
    for (int i = 0; i < kCount; i += 2) {
      const float second = i + 1 < kCount ? values[(i + 1) % kCount] : 0.0f;
      words[i / 2] = __vmins2(pair_of(values[i], second, T{}), kNaN);
    }
  } else {
#pragma unroll
    for (int i = 0; i < kCount; ++i)
      words[i] = __float_as_uint(values[i] == values[i] ? values[i] : math::canonical_nan<float>());
  }
}

// Numbers that are read out of their words.
template <class T, int kCount>
struct Packed : Together<kCount* static_cast<int>(sizeof(T))> {
  static constexpr int kBytes = kCount * static_cast<int>(sizeof(T));
  using Together<kBytes>::words;

  __device__ __forceinline__ float operator[](int i) const {
    if constexpr (sizeof(T) == 2)
      return of_pair<T>(words[i / 2], i % 2);
    else
      return __uint_as_float(words[i]);
  }
  // Rounds each number once. A NaN becomes the canonical one.
  __device__ __forceinline__ void narrow(const float (&values)[kCount]) {
    narrow_words<T>(values, words);
  }
};
template <class T, int kCount>
__device__ __forceinline__ Packed<T, kCount> packed(const float (&values)[kCount]) {
  Packed<T, kCount> result;
  result.narrow(values);
  return result;
}

// Whether every row of an operand is whole words that lie at aligned addresses. `row_bytes`: of its
// last axis; `size`: of what strides count.
inline bool has_whole_words(const OperandView& view, std::int64_t row_bytes, std::int64_t size,
                            int bytes) {
  if (!aligned_to(view.data, bytes) || row_bytes % bytes != 0) return false;
  for (int axis = 0; axis + 1 < view.rank; ++axis)
    if (view.strides[static_cast<std::size_t>(axis)] * size % bytes != 0) return false;
  return true;
}

}  // namespace planq::cuda
