// In the place of src/cuda/mma.cuh: steps of the tensor cores of sm_90 by their model.
#pragma once

#include "cuda/memory_access.cuh"
#include "math/formats.h"
#include "math/tensor_core.h"

namespace planq::cuda {

template <class T>
class WarpStep {
 public:
  // The words of all lanes: four of the first factor, two of the second.
  WarpStep(const std::uint32_t (&a)[4], std::uint32_t b0, std::uint32_t b1) {
    emulated::Block& block = emulated::Block::current();
    const std::uint32_t own[6] = {a[0], a[1], a[2], a[3], b0, b1};
    for (int i = 0; i < 6; ++i) block.exchange(own[i], words_[i]);
  }
  // Onto the sum of a row of the first factor and one of the second.
  float add(float sum, int row, int column) const {
    float first[16], second[16];
    for (int term = 0; term < 16; ++term) {
      const int lane = term % 8 / 2, half = term / 8;
      first[term] = number(words_[half * 2 + row / 8][row % 8 * 4 + lane], term % 2);
      second[term] = number(words_[4 + half][column * 4 + lane], term % 2);
    }
    constexpr int kSmallest = std::is_same_v<T, math::Half> ? -14 : -126;
    return math::tensor_core_step<math::TensorCore16>(sum, math::FactorRow{first, kSmallest},
                                                      math::FactorRow{second, kSmallest}, 16);
  }

 private:
  static float number(std::uint32_t word, int half) {
    return math::widen(T{static_cast<std::uint16_t>(word >> 16 * half)});
  }
  std::uint32_t words_[6][emulated::kWarpThreads];
};

template <class T>
void multiply_add_floats(float (&sums)[4], const std::uint32_t (&a)[4], std::uint32_t b0,
                         std::uint32_t b1) {
  const WarpStep<T> step(a, b0, b1);
  const int lane = static_cast<int>(emulated::Block::current().lane());
  for (int i = 0; i < 4; ++i)
    sums[i] = step.add(sums[i], lane / 4 + i / 2 * 8, lane % 4 * 2 + i % 2);
}

}  // namespace planq::cuda
