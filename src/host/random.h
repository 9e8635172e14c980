// The random numbers of stochastic rounding.
#pragma once

#include <cstdint>

#include "core/scalar.h"
#include "math/philox.h"

namespace planq::host {

// The value of a seed or an offset, which is given by value or in memory.
inline std::uint64_t scalar_of(const OperandView& view) {
  return static_cast<std::uint64_t>(integer_of(view).get());
}

// The random numbers of elements from `index` on; four of them come from one value of the counter.
template <class C>
void fill_uniforms(C* uniforms, std::int64_t index, std::int64_t count, std::uint64_t seed,
                   std::uint64_t offset) {
  const math::PhiloxKeys keys(seed);
  for (std::int64_t i = 0; i < count;) {
    const auto at = static_cast<std::uint64_t>(index + i);
    const auto words = math::philox(keys, offset + at / 4);
    for (std::uint64_t j = at % 4; j < 4 && i < count; ++j, ++i)
      uniforms[i] = math::uniform_of<C>(words.word[j]);
  }
}

}  // namespace planq::host
