// Rows that a team of threads holds in registers: a warp has kPasses times 32 vectors of kEach
// neighbours, one of each 32 in a lane. A team is a warp, or all warps of a block.
#pragma once

#include <cstdint>

#include "core/dtype.h"
#include "cuda/memory_access.cuh"
#include "cuda/neighbours.cuh"
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

// Everything is under way before the first of it is looked at. Where there is no column, elements
// are `none`.
template <class T, int kPasses, int kEach>
__device__ __forceinline__ void read_columns(const T* from,
                                             const HeldColumns<kPasses, kEach>& columns, T none,
                                             float (&to)[kPasses][kEach]) {
  Neighbours<T, kEach> read[kPasses];
#pragma unroll
  for (int p = 0; p < kPasses; ++p) {
    read[p].fill(none);
    if (columns.has(p)) read[p].load(from + columns.at(p));
  }
#pragma unroll
  for (int p = 0; p < kPasses; ++p)
#pragma unroll
    for (int i = 0; i < kEach; ++i) to[p][i] = math::widened(read[p].each[i]);
}

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
