// Loops of sums_host.cpp over consecutive elements, for one instruction set. No include guard: see
// instruction_sets.h.

#include "host/convert.h"

namespace planq::host::PLANQ_LEVEL {

template <class T>
void squares(const T* x, std::int64_t count, Compute<T>* __restrict to) {
  widen<T>(x, count, to);
  for (std::int64_t i = 0; i < count; ++i) to[i] = to[i] * to[i];
}

template <class T>
void magnitudes(const T* x, std::int64_t count, Compute<T>* __restrict to) {
  widen<T>(x, count, to);
  for (std::int64_t i = 0; i < count; ++i)
    to[i] = bit_cast<Compute<T>>(math::magnitude_bits(to[i]));
}

// The largest, by its bits: a NaN is above infinity.
template <class T>
Compute<T> largest_magnitude(const T* x, std::int64_t count) {
  using Bits = StoredBits<T>;
  constexpr Bits kMagnitude = static_cast<Bits>(~Bits{0}) >> 1;
  Bits largest = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    const Bits own = bit_cast<Bits>(x[i]) & kMagnitude;
    largest = largest > own ? largest : own;
  }
  return math::widen(bit_cast<T>(largest));
}

template <class T>
inline constexpr SumLoops<T> kSumLoops = {squares<T>, magnitudes<T>, largest_magnitude<T>};

}  // namespace planq::host::PLANQ_LEVEL
