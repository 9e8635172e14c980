// Neighbours of a row that a thread loads and stores together, and whether the rows of an operand
// lie in memory so that it may.
#pragma once

#include <cstdint>
#include <cstring>

#include "core/operands.h"
#include "cuda/launch.cuh"
#include "cuda/memory_access.cuh"

namespace planq::cuda {

// Elements as they lie in memory, a power of two: vectors, or a word of less than one. The address
// is aligned to the bytes of all, or to a vector.
template <class T, int kCount>
struct Neighbours {
  static constexpr int kBytes = kCount * static_cast<int>(sizeof(T));
  static constexpr int kAlignment = kBytes < kVectorBytes ? kBytes : kVectorBytes;

  T each[kCount];

  __device__ __forceinline__ void load(const T* from) {
    if constexpr (kBytes >= kVectorBytes) {
      uint4 vectors[kBytes / kVectorBytes];
#pragma unroll
      for (int i = 0; i < kBytes / kVectorBytes; ++i)
        vectors[i] = reinterpret_cast<const uint4*>(from)[i];
      memcpy(each, vectors, sizeof each);
    } else {
      const Word<kBytes> word = *reinterpret_cast<const Word<kBytes>*>(from);
      memcpy(each, &word, sizeof each);
    }
  }
  __device__ __forceinline__ void store(T* to) const {
    if constexpr (kBytes >= kVectorBytes) {
      uint4 vectors[kBytes / kVectorBytes];
      memcpy(vectors, each, sizeof vectors);
#pragma unroll
      for (int i = 0; i < kBytes / kVectorBytes; ++i) reinterpret_cast<uint4*>(to)[i] = vectors[i];
    } else {
      Word<kBytes> word;
      memcpy(&word, each, sizeof word);
      *reinterpret_cast<Word<kBytes>*>(to) = word;
    }
  }
};

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
