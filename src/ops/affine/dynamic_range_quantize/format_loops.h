// Loops over whole groups of floats, for one instruction set: see host_formats.cpp. No include
// guard: see instruction_sets.h.

#include "host/convert.h"

namespace planq::host::PLANQ_LEVEL {

// The bits of the largest magnitude of each group.
template <int kGroup>
void group_peaks(const float* __restrict values, std::int64_t groups,
                 std::uint32_t* __restrict peaks) {
  for (std::int64_t i = 0; i < groups; ++i) {
    std::int32_t peak = 0;  // magnitudes have no sign, and vectors compare signed numbers
    for (int j = 0; j < kGroup; ++j) {
      const auto bits = static_cast<std::int32_t>(math::magnitude_bits(values[i * kGroup + j]));
      peak = bits > peak ? bits : peak;
    }
    peaks[i] = static_cast<std::uint32_t>(peak);
  }
}

// The codes of all groups, a byte each; those of poisoned ones have no meaning.
template <class Code, int kGroup>
void group_codes(const float* __restrict values, const float* __restrict factors,
                 std::int64_t groups, float largest, std::uint8_t* __restrict codes) {
  for (std::int64_t i = 0; i < groups; ++i) {
    Ieee<float>::Bits wide[kGroup];
    const float factor = factors[i];
    for (int j = 0; j < kGroup; ++j) {
      const float scaled = values[i * kGroup + j] * factor;
      wide[j] = Code::of(math::clamp(scaled == scaled ? scaled : 0.0f, -largest, largest));
    }
    for (int j = 0; j < kGroup; ++j) codes[i * kGroup + j] = static_cast<std::uint8_t>(wide[j]);
  }
}

template <class T, class Code, int kGroup>
inline constexpr GroupLoops kGroupLoops = {widen<T>, group_peaks<kGroup>,
                                           group_codes<Code, kGroup>};

}  // namespace planq::host::PLANQ_LEVEL
