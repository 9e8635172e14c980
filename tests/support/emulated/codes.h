// Fields of codes from words, in the order of tests/support/emulated_codes.py.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <string_view>

#include "ops/affine/quantized_output.h"

namespace emulated {

template <class E>
E enumerator(const char* name) {
  for (std::size_t i = 0; i < planq::kNames<E>.size(); ++i)
    if (planq::kNames<E>[i] == name) return static_cast<E>(i);
  std::abort();
}

// The output's type comes first.
inline planq::affine::QuantizedOutput codes_from(const char* const* words, const double* numbers) {
  using namespace planq;
  affine::QuantizedOutput codes;
  codes.norm_dtype = enumerator<DType>(words[1]);
  codes.scale_dtype = enumerator<DType>(words[2]);
  codes.scope.kind = enumerator<ScopeKind>(words[3]);
  codes.mode = enumerator<Mode>(words[4]);
  codes.quotient = enumerator<Quotient>(words[5]);
  codes.nonfinite = enumerator<NonFinite>(words[6]);
  codes.nibble_order = enumerator<NibbleOrder>(words[7]);
  codes.convention = enumerator<Convention>(words[8]);
  codes.q_min = numbers[0];
  codes.q_max = numbers[1];
  codes.scope.size = static_cast<std::int64_t>(numbers[2]);
  codes.also_output = numbers[3] != 0;
  codes.scale_given = numbers[4] != 0;
  codes.include_zero = numbers[5] != 0;
  codes.scale_ub = numbers[6];
  return codes;
}

}  // namespace emulated
