// Rows that a team of threads holds in registers: a warp has kPasses times 32 vectors of kEach
// neighbours, one of each 32 in a lane. A team is a warp, or all warps of a block.
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "core/dtype.h"
#include "core/index_space.h"
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

// Whether rows lie along one axis, or there is one row: most often it is so.
template <int kOperands>
PLANQ_HD bool is_one_axis(const IndexSpaceOf<kOperands>& rows) {
  return rows.rank <= 1 && rows.axes[0].grouped == 0;
}
// Where a row of such begins in every operand.
template <int kOperands>
__device__ __forceinline__ OffsetsOf<kOperands> offsets_of_axis(const AxisOf<kOperands>& rows,
                                                                std::int64_t row) {
  OffsetsOf<kOperands> at;
#pragma unroll
  for (int i = 0; i < kOperands; ++i) at.at[i] = row * rows.stride[i];
  return at;
}
// Where a row of any begins.
template <int kOperands>
__device__ __forceinline__ OffsetsOf<kOperands> row_offsets(const IndexSpaceOf<kOperands>& rows,
                                                            std::int64_t row) {
  return is_one_axis(rows) ? offsets_of_axis(rows.axes[0], row) : rows.offsets(row);
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
// `thread`: its number in the team.
template <int kPasses, int kEach>
__device__ __forceinline__ HeldColumns<kPasses, kEach> held_columns(int thread, int length) {
  return {(thread / kWarp * kPasses * kWarp + thread % kWarp) * kEach, length};
}

template <class T, int kPasses, int kEach>
__device__ __forceinline__ void read_columns(const T* from,
                                             const HeldColumns<kPasses, kEach>& columns,
                                             float (&to)[kPasses][kEach]);

// Columns as they lie in memory: what is loaded before anything is looked at, so that all loads of
// a thread are under way together. Where there is no column, the row's first vector is loaded: that
// takes fewer instructions than nothing. kSize: the bytes of an element; columns of another size
// are loaded when they are asked for.
template <int kPasses, int kEach, int kSize>
struct RawColumns {
  using Sized = std::conditional_t<kSize == 4, float, math::Half>;
  Packed<Sized, kEach> passes[kPasses];

  // Of a row that is read once, in the order of the code.
  __device__ __forceinline__ void load(const void* from, std::int64_t offset, DType type,
                                       const HeldColumns<kPasses, kEach>& columns) {
    if ((type == DType::Float32) != (kSize == 4)) return;
#pragma unroll
    for (int p = 0; p < kPasses; ++p)
      passes[p].load_vector_once(static_cast<const Sized*>(from) + offset + place(columns, p));
  }
  // Of a row that others read too.
  template <class T>
  __device__ __forceinline__ void load_shared(const T* from,
                                              const HeldColumns<kPasses, kEach>& columns) {
    static_assert(sizeof(T) == kSize);
#pragma unroll
    for (int p = 0; p < kPasses; ++p)
      passes[p].load(reinterpret_cast<const Sized*>(from) + place(columns, p));
  }
  // As numbers; `from`: where they are, of the type that load() was given.
  template <class T>
  __device__ __forceinline__ void widen(const T* from, const HeldColumns<kPasses, kEach>& columns,
                                        float (&to)[kPasses][kEach]) const {
    if constexpr (sizeof(T) == kSize)
      widen_own<T>(to);
    else
      read_columns(from, columns, to);
  }
  template <class T>
  __device__ __forceinline__ void widen_own(float (&to)[kPasses][kEach]) const {
#pragma unroll
    for (int p = 0; p < kPasses; ++p) {
      Packed<T, kEach> own;
      memcpy(own.words, passes[p].words, sizeof own.words);
#pragma unroll
      for (int i = 0; i < kEach; ++i) to[p][i] = own[i];
    }
  }

 private:
  static __device__ __forceinline__ int place(const HeldColumns<kPasses, kEach>& columns, int p) {
    return columns.has(p) ? columns.at(p) : 0;
  }
};

// The same as numbers.
template <class T, int kPasses, int kEach>
__device__ __forceinline__ void read_columns(const T* from,
                                             const HeldColumns<kPasses, kEach>& columns,
                                             float (&to)[kPasses][kEach]) {
  RawColumns<kPasses, kEach, sizeof(T)> raw;
  raw.load_shared(from, columns);
  raw.template widen_own<T>(to);
}

// Each number rounded once. A NaN becomes the canonical one.
template <class T, int kPasses, int kEach>
__device__ __forceinline__ void write_columns(const float (&from)[kPasses][kEach],
                                              const HeldColumns<kPasses, kEach>& columns, T* to) {
#pragma unroll
  for (int p = 0; p < kPasses; ++p)
    if (columns.has(p)) packed<T>(from[p]).store(to + columns.at(p));
}

// Rounded to the type and back.
template <class T, int kEach>
__device__ __forceinline__ void round_neighbours(float (&values)[kEach]) {
  const auto rounded = packed<T>(values);
#pragma unroll
  for (int i = 0; i < kEach; ++i) values[i] = rounded[i];
}

}  // namespace planq::cuda
