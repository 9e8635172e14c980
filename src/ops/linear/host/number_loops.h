// Scales, biases and residuals in the type that an epilogue computes in, for one instruction set.
// No include guard: int8_loops.h and float_loops.h include this for each instruction set.

#include "host/convert.h"

namespace planq::host::PLANQ_LEVEL {

template <class C>
void load_numbers(const void* from, DType dtype, std::int64_t first, std::int64_t count, C* to) {
  for (std::int64_t i = 0; i < count; ++i) to[i] = math::load_scale<C>(from, first + i, dtype);
}
template <>
inline void load_numbers<float>(const void* from, DType dtype, std::int64_t first,
                                std::int64_t count, float* to) {
  if (dtype == DType::Float16)
    widen<math::Half>(static_cast<const math::Half*>(from) + first, count, to);
  else if (dtype == DType::BFloat16)
    widen<math::Bfloat16>(static_cast<const math::Bfloat16*>(from) + first, count, to);
  else if (dtype == DType::Float32)
    widen<float>(static_cast<const float*>(from) + first, count, to);
  else
    for (std::int64_t i = 0; i < count; ++i)
      to[i] = static_cast<float>(static_cast<const double*>(from)[first + i]);
}

}  // namespace planq::host::PLANQ_LEVEL
