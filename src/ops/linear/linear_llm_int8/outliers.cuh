// Outliers in the epilogues of CUDA's kernels: the listed columns onto sums that have their rows'
// scales. What these functions read is written by a kernel that may still run when the product
// begins, so an epilogue calls cuda::wait_for_previous() first.
#pragma once

#include <cstdint>

#include "cuda/launch.cuh"
#include "ops/linear/epilogue.h"

namespace planq::linear {

// Four neighbouring codes of the weight, from a multiple of four on: rows of codes are padded.
template <class C>
__device__ __forceinline__ void listed_codes(const Outliers& outliers, std::int64_t place,
                                             std::int64_t column, C (&codes)[4]) {
  const auto four =
      *reinterpret_cast<const char4*>(outliers.codes + place * outliers.pitch + column);
  codes[0] = static_cast<C>(static_cast<signed char>(four.x));
  codes[1] = static_cast<C>(static_cast<signed char>(four.y));
  codes[2] = static_cast<C>(static_cast<signed char>(four.z));
  codes[3] = static_cast<C>(static_cast<signed char>(four.w));
}

// Adds all listed columns to four neighbouring sums of several rows, in their order.
template <class C, int kRows>
__device__ __forceinline__ void add_listed(const Outliers& outliers,
                                           const std::int64_t (&rows)[kRows], std::int64_t column,
                                           C (&sums)[kRows][4]) {
  const auto listed = static_cast<int>(outliers.listed());
  const C* values[kRows];
#pragma unroll
  for (int r = 0; r < kRows; ++r)
    values[r] = static_cast<const C*>(outliers.values) + rows[r] * outliers.row;
#pragma unroll 2
  for (int place = 0; place < listed; ++place) {
    C codes[4];
    listed_codes(outliers, place, column, codes);
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const C value = values[r][place];
#pragma unroll
      for (int i = 0; i < 4; ++i) sums[r][i] = math::fused(value, codes[i], sums[r][i]);
    }
  }
}

}  // namespace planq::linear
