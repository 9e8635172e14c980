// Loops over a chunk, for one instruction set: see host.cpp. No include guard: see
// host/instruction_sets.h.

#include "host/convert.h"

namespace planq::host::PLANQ_LEVEL {

inline void add_scaled(float* __restrict values, const float* __restrict others, float alpha,
                       std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) values[i] = add::sum_of(values[i], alpha, others[i]);
}

template <class T>
inline constexpr add::Conversions kAddConversions = {widen<T>, narrow<T>};

inline constexpr add::Loops kAddLoops = {
    {kAddConversions<math::Half>, kAddConversions<math::Bfloat16>, kAddConversions<float>},
    add_scaled};

}  // namespace planq::host::PLANQ_LEVEL
