// Loops over the columns of a head, for one instruction set: see head_host.cpp. No include guard:
// see host/instruction_sets.h.

#include "host/convert.h"

namespace planq::host::PLANQ_LEVEL {

inline void turn_halves(const float* __restrict cosines, std::int64_t pairs, float* __restrict x) {
  const float* __restrict sines = cosines + pairs;
  float* __restrict second = x + pairs;
  for (std::int64_t i = 0; i < pairs; ++i) {
    const math::TurnedPair pair = math::turned(x[i], second[i], cosines[i], sines[i]);
    x[i] = pair.a;
    second[i] = pair.b;
  }
}
inline void turn_neighbours(const float* __restrict cosines, std::int64_t pairs,
                            float* __restrict x) {
  const float* __restrict sines = cosines + pairs;
  for (std::int64_t i = 0; i < pairs; ++i) {
    const math::TurnedPair pair = math::turned(x[2 * i], x[2 * i + 1], cosines[i], sines[i]);
    x[2 * i] = pair.a;
    x[2 * i + 1] = pair.b;
  }
}
inline void square_columns(const float* __restrict x, std::int64_t count,
                           float* __restrict squares) {
  for (std::int64_t i = 0; i < count; ++i) squares[i] = x[i] * x[i];
}
inline void scale_columns(float factor, const float* __restrict weight, std::int64_t count,
                          float* __restrict x) {
  for (std::int64_t i = 0; i < count; ++i) x[i] = (x[i] * factor) * (weight[i] + 0.0f);
}

template <class T>
inline constexpr position::HeadLoops kHeadLoops = {widen<T>,        narrow<T>,      turn_halves,
                                                   turn_neighbours, square_columns, scale_columns};
inline constexpr position::WidenColumns kWidenWeights[] = {widen<math::Half>, widen<math::Bfloat16>,
                                                           widen<float>};

}  // namespace planq::host::PLANQ_LEVEL
