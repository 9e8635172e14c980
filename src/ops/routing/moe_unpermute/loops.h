// Loops over neighbouring columns of a token's sum, for one instruction set: see host.cpp. No
// include guard: see host/instruction_sets.h.

#include "host/convert.h"

namespace planq::host::PLANQ_LEVEL {

template <class T>
void add_row(const void* row, std::int64_t count, float weight, float* __restrict sums) {
  float wide[moe_unpermute::kChunk];
  widen<T>(row, count, wide);
  for (std::int64_t i = 0; i < count; ++i) sums[i] = __builtin_fmaf(wide[i], weight, sums[i]);
}

template <class T, class U>
inline constexpr moe_unpermute::Loops kSumLoops = {add_row<T>, narrow<U>};

}  // namespace planq::host::PLANQ_LEVEL
