// Steps of a tensor core for the tiles of attention: by mma.sync, whose arithmetic on sm_90 is that
// of math/tensor_core.h, and by that model itself, on any GPU.
#pragma once

#include <cstdint>

#include "cuda/mma.cuh"
#include "cuda/pairs.cuh"
#include "math/tensor_core.h"

namespace planq::attention {
namespace {

struct TensorCoreSteps {
  template <class T>
  __device__ __forceinline__ static void multiply_add(float (&sums)[4], const std::uint32_t (&a)[4],
                                                      std::uint32_t b0, std::uint32_t b1) {
    cuda::multiply_add_floats<T>(sums, a, b0, b1);
  }
};

// The terms of a row of a factor, of which four lanes from `lane` on have two pairs each.
template <class T>
struct RowTerms {
  float values[16];

  __device__ __forceinline__ RowTerms(std::uint32_t low, std::uint32_t high, int lane) {
#pragma unroll
    for (int t = 0; t < 4; ++t) {
      const std::uint32_t first = __shfl_sync(cuda::kAllLanes, low, lane + t);
      const std::uint32_t second = __shfl_sync(cuda::kAllLanes, high, lane + t);
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        values[2 * t + i] = cuda::of_pair<T>(first, i);
        values[8 + 2 * t + i] = cuda::of_pair<T>(second, i);
      }
    }
  }
};

// The words of all lanes and the sums as for multiply_add_floats(). Not inlined: there are many
// calls.
template <class T>
__device__ __noinline__ float4 model_step(float4 sums, uint4 a, uint2 b) {
  constexpr int kSmallest = std::is_same_v<T, math::Half> ? -14 : -126;
  const int lane = static_cast<int>(threadIdx.x) % cuda::kWarp;
  const int row = lane / 4 * 4, column = lane % 4 * 2 * 4;
  const RowTerms<T> rows[2] = {{a.x, a.z, row}, {a.y, a.w, row}};
  const RowTerms<T> columns[2] = {{b.x, b.y, column}, {b.x, b.y, column + 4}};
  const auto step = [&](float sum, int i) {
    return math::tensor_core_step<math::TensorCore16>(
        sum, math::FactorRow{rows[i / 2].values, kSmallest},
        math::FactorRow{columns[i % 2].values, kSmallest}, 16);
  };
  return {step(sums.x, 0), step(sums.y, 1), step(sums.z, 2), step(sums.w, 3)};
}

struct ModelSteps {
  template <class T>
  __device__ __forceinline__ static void multiply_add(float (&sums)[4], const std::uint32_t (&a)[4],
                                                      std::uint32_t b0, std::uint32_t b1) {
    const float4 made =
        model_step<T>({sums[0], sums[1], sums[2], sums[3]}, {a[0], a[1], a[2], a[3]}, {b0, b1});
    sums[0] = made.x, sums[1] = made.y, sums[2] = made.z, sums[3] = made.w;
  }
};

}  // namespace
}  // namespace planq::attention
