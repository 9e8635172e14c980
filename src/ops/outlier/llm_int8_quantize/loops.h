// Loops over a piece of a row, for one instruction set: see host.cpp. No include guard: see
// host/instruction_sets.h.

#include "host/convert.h"

namespace planq::host::PLANQ_LEVEL {

// The largest magnitude below `least`, and whether there is one that is not below it.
template <class T>
PieceMagnitudes<T> measure_piece(const T* __restrict x, std::int64_t count,
                                 outlier::Magnitude<T> least) {
  using M = outlier::Magnitude<T>;
  M largest = 0, above = 0;
  for (std::int64_t j = 0; j < count; ++j) {
    const M own = outlier::magnitude_of(x[j]);
    const bool below = own < least;
    const M kept = below ? own : M{0};
    largest = largest > kept ? largest : kept;
    above |= below ? M{0} : M{1};
  }
  return {largest, above != 0};
}

template <class T, bool kDivide>
void encode_piece(const T* x, std::int64_t count, float scale, float inverse,
                  std::int8_t* __restrict codes) {
  float values[kLlmPiece];
  std::uint32_t wide[kLlmPiece];
  widen<T>(x, count, values);
  for (std::int64_t j = 0; j < count; ++j)
    wide[j] = outlier::code_bits(kDivide ? values[j] / scale : values[j] * inverse);
  for (std::int64_t j = 0; j < count; ++j) codes[j] = static_cast<std::int8_t>(wide[j]);
}

template <class T>
inline constexpr LlmLoops<T> kLlmLoops = {measure_piece<T>, encode_piece<T, true>,
                                          encode_piece<T, false>};

}  // namespace planq::host::PLANQ_LEVEL
