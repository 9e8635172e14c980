// Loops over a chunk, for one instruction set: see host.cpp. No include guard: see
// host/instruction_sets.h.

#include "host/convert.h"

namespace planq::host::PLANQ_LEVEL {

template <ActivationFunction kFunction>
void activate(float* values, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) values[i] = activation::value_of<kFunction>(values[i]);
}

inline void multiply_gates(float* __restrict values, const float* __restrict others,
                           std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) values[i] *= others[i];
}

// The first and the second numbers of pairs.
inline void part_pairs(const float* __restrict pairs, std::int64_t count, float* __restrict first,
                       float* __restrict second) {
  for (std::int64_t i = 0; i < count; ++i) {
    first[i] = pairs[2 * i];
    second[i] = pairs[2 * i + 1];
  }
}

template <class T, class U>
inline constexpr activation::Loops kActivationLoops = {
    {activate<ActivationFunction::Silu>, activate<ActivationFunction::GeluTanh>,
     activate<ActivationFunction::GeluErf>, activate<ActivationFunction::Sigmoid>,
     activate<ActivationFunction::Relu>, activate<ActivationFunction::ReluSquared>},
    widen<T>,
    narrow<U>,
    multiply_gates,
    part_pairs};

}  // namespace planq::host::PLANQ_LEVEL
