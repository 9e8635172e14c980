// Loops over the columns of a product, for one instruction set: see host.cpp. No include guard: see
// host/instruction_sets.h.

#include "host/convert.h"

namespace planq::host::PLANQ_LEVEL {

inline float number(std::int8_t code) { return static_cast<float>(code); }
inline float number(math::Half x) { return math::widen(x); }
inline float number(math::Bfloat16 x) { return math::widen(x); }

// Adds one entry to neighbouring columns whose weights are neighbours too.
template <class W>
void add_neighbours(const W* weight, std::int64_t count, float value, float* __restrict sums) {
  float wide[spmm_coo::kChunk];
  if constexpr (std::is_same_v<W, std::int8_t>) {
    for (std::int64_t j = 0; j < count; ++j) wide[j] = number(weight[j]);
  } else {
    widen<W>(weight, count, wide);
  }
  for (std::int64_t j = 0; j < count; ++j) sums[j] = __builtin_fmaf(value, wide[j], sums[j]);
}

// Adds all entries of a row to columns whose weights are `stride` apart, a few columns at a time.
// So the entries of a row read weights that lie near each other.
template <class W>
void add_apart(const W* weight, std::int64_t stride, std::int64_t count,
               const spmm_coo::RowEntries& entries, float* __restrict sums) {
  constexpr std::int64_t kSome = 8;
  for (std::int64_t j = 0; j < count; j += kSome) {
    const std::int64_t some = std::min(kSome, count - j);
    float own[kSome] = {};
    for (std::int64_t i = entries.first; i < entries.last; ++i) {
      if (!entries.takes_part(i)) continue;
      const W* const from = weight + j * stride + entries.columns[i];
      const float value = entries.value(i);
      for (std::int64_t k = 0; k < some; ++k)
        own[k] = __builtin_fmaf(value, number(from[k * stride]), own[k]);
    }
    std::copy_n(own, some, sums + j);
  }
}

template <class W, class T>
inline constexpr spmm_coo::Loops<W> kProductLoops = {add_neighbours<W>, add_apart<W>, widen<T>,
                                                     narrow<T>};

}  // namespace planq::host::PLANQ_LEVEL
