// Loops over neighbouring columns, for one instruction set: see host.cpp. No include guard: see
// host/instruction_sets.h.

#include "host/convert.h"

namespace planq::host::PLANQ_LEVEL {

template <class T>
void merge_columns(const math::OutputMerging& merging, const void* one, const void* other,
                   std::int64_t count, void* to) {
  float x[merge_attention_states::kChunk], y[merge_attention_states::kChunk];
  widen<T>(one, count, x);
  widen<T>(other, count, y);
  for (std::int64_t i = 0; i < count; ++i) x[i] = merging.of(x[i], y[i]);
  narrow<T>(x, count, to);
}

template <class T>
inline constexpr merge_attention_states::MergeColumns kMergeColumns = merge_columns<T>;

}  // namespace planq::host::PLANQ_LEVEL
