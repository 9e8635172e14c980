// Loops of rows_host.cpp over neighbouring columns, for one instruction set. No include guard: see
// host/instruction_sets.h.

#include "host/convert.h"

namespace planq::host::PLANQ_LEVEL {

inline void add_elements(const float* __restrict other, std::int64_t count, float* __restrict x) {
  for (std::int64_t i = 0; i < count; ++i) x[i] = x[i] + other[i];
}
inline void add_number(float number, std::int64_t count, float* x) {
  for (std::int64_t i = 0; i < count; ++i) x[i] = x[i] + number;
}
inline void square(float mean, std::int64_t count, float* x) {
  for (std::int64_t i = 0; i < count; ++i) x[i] = math::squared_distance(x[i], mean);
}
inline void normalize(float mean, float factor, std::int64_t count, float* x) {
  for (std::int64_t i = 0; i < count; ++i) x[i] = math::normalized(x[i], mean, factor);
}
inline void multiply(const float* __restrict weight, std::int64_t count, float* __restrict x) {
  for (std::int64_t i = 0; i < count; ++i) x[i] = x[i] * weight[i];
}
inline void multiply_add(const float* __restrict weight, const float* __restrict bias,
                         std::int64_t count, float* __restrict x) {
  for (std::int64_t i = 0; i < count; ++i) x[i] = __builtin_fmaf(x[i], weight[i], bias[i]);
}

inline constexpr NormLoops kNormLoops = {
    {widen<math::Half>, widen<math::Bfloat16>, widen<float>},
    {narrow<math::Half>, narrow<math::Bfloat16>, narrow<float>},
    add_elements,
    add_number,
    square,
    normalize,
    multiply,
    multiply_add};

}  // namespace planq::host::PLANQ_LEVEL
