// Rows that a team of threads holds in registers: a warp has kPasses times 32 vectors of kEach
// neighbours, one of each 32 in a lane. A team is a warp, or all warps of a block.
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "core/dtype.h"
#include "cuda/memory_access.cuh"
#include "cuda/neighbours.cuh"
#include "cuda/pairs.cuh"
#include "math/conversions.h"

namespace planq::cuda {

// Calls visit(a number of the stored type) for float16, bfloat16 or float32.
template <class Visit>
__device__ __forceinline__ void with_float(DType type, const Visit& visit) {
  if (type == DType::BFloat16)
    visit(math::Bfloat16{});
  else if (type == DType::Float16)
    visit(math::Half{});
  else
    visit(float{});
}

// The columns of a thread.
template <int kPasses, int kEach>
struct HeldColumns {
  static constexpr int kStep = kWarp * kEach;
  int first, length;

  __device__ __forceinline__ HeldColumns(int first, int length) : first(first), length(length) {}
  __device__ __forceinline__ HeldColumns<1, kEach> pass(int p) const { return {at(p), length}; }
  __device__ __forceinline__ int at(int pass) const { return first + pass * kStep; }
  __device__ __forceinline__ bool has(int pass) const { return at(pass) < length; }
};
// `lanes`: threads of the team.
template <int kPasses, int kEach>
__device__ __forceinline__ HeldColumns<kPasses, kEach> held_columns(int lanes, int length) {
  const int thread = static_cast<int>(threadIdx.x) % lanes;
  return {(thread / kWarp * kPasses * kWarp + thread % kWarp) * kEach, length};
}

// Columns as numbers, all of them under way before the first is looked at. Where there is no
// column, elements are -0, which adds nothing to a sum.
template <class T, int kPasses, int kEach>
__device__ __forceinline__ void read_columns(const T* from,
                                             const HeldColumns<kPasses, kEach>& columns,
                                             float (&to)[kPasses][kEach]) {
  Neighbours<T, kEach> read[kPasses];
#pragma unroll
  for (int p = 0; p < kPasses; ++p) {
#pragma unroll
    for (T& each : read[p].each) each = math::narrowed<T>(-0.0f);
    if (columns.has(p)) read[p].load(from + columns.at(p));
  }
#pragma unroll
  for (int p = 0; p < kPasses; ++p)
#pragma unroll
    for (int i = 0; i < kEach; ++i) to[p][i] = math::widened(read[p].each[i]);
}

// Columns as they lie in memory: what is loaded before anything is looked at, so that all loads of
// a thread are under way together. Where there is no column, elements are -0, which adds nothing to
// a sum. kSize: the bytes of an element; columns of another size are loaded when they are asked
// for.
template <int kPasses, int kEach, int kSize>
struct RawColumns {
  std::uint32_t words[kPasses][kEach * kSize / 4];

  __device__ __forceinline__ void load(const void* from, std::int64_t offset, DType type,
                                       const HeldColumns<kPasses, kEach>& columns) {
    const bool known = (type == DType::Float32) == (kSize == 4);
#pragma unroll
    for (int p = 0; p < kPasses; ++p) {
#pragma unroll
      for (std::uint32_t& word : words[p]) word = kSize == 4 ? 0x80000000u : 0x80008000u;
      if (known && columns.has(p)) load_pass<kSize>(from, offset + columns.at(p), words[p]);
    }
  }
  // As numbers; `from`: where they are, of the type that load() was given.
  template <class T>
  __device__ __forceinline__ void widen(const T* from, const HeldColumns<kPasses, kEach>& columns,
                                        float (&to)[kPasses][kEach]) const {
    if constexpr (sizeof(T) != kSize) {
      read_columns(from, columns, to);
    } else {
#pragma unroll
      for (int p = 0; p < kPasses; ++p)
#pragma unroll
        for (int i = 0; i < kEach; ++i) {
          if constexpr (sizeof(T) == 2)
            to[p][i] = of_pair<T>(words[p][i / 2], i % 2);
          else
            to[p][i] = __uint_as_float(words[p][i]);
        }
    }
  }

 private:
  template <int kBytes, int kWords>
  static __device__ __forceinline__ void load_pass(const void* from, std::int64_t place,
                                                   std::uint32_t (&to)[kWords]) {
    using T = std::conditional_t<kBytes == 4, float, math::Half>;
    Neighbours<T, kEach> read;
    read.load(static_cast<const T*>(from) + place);
    memcpy(to, read.each, sizeof to);
  }
};

// Each number rounded once. A NaN becomes the canonical one.
template <class T, int kPasses, int kEach>
__device__ __forceinline__ void write_columns(const float (&from)[kPasses][kEach],
                                              const HeldColumns<kPasses, kEach>& columns, T* to) {
#pragma unroll
  for (int p = 0; p < kPasses; ++p)
    if (columns.has(p)) narrow_neighbours<T>(from[p]).store(to + columns.at(p));
}

// Rounded to the type and back.
template <class T, int kEach>
__device__ __forceinline__ void round_neighbours(float (&values)[kEach]) {
  const Neighbours<T, kEach> rounded = narrow_neighbours<T>(values);
#pragma unroll
  for (int i = 0; i < kEach; ++i) values[i] = math::widened(rounded.each[i]);
}

}  // namespace planq::cuda
