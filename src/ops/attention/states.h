// States of attention, for both backends: what some keys make of a query is their largest scaled
// score M, the sum L of the powers 2^(score - M) and the values weighed by these. States of
// different keys are merged into one.
#pragma once

#include "math/functions.h"

namespace planq::math {

// Keys are taken in blocks, and blocks in spans, by their positions in the sequence.
inline constexpr int kBlockKeys = 128, kSpanKeys = 1024;

// 2^x of what is not above 0.
PLANQ_HD float power_of_score(float x) { return exp2_fast<5>(x); }
// The same for several.
template <int kCount>
PLANQ_HD void powers_of_scores(float (&x)[kCount]) {
  exp2_fast<5>(x);
}

// What multiplies the sums and values of a state whose M becomes `next`. There is nothing to
// multiply where M was -inf.
PLANQ_HD float fading(float most, float next) {
  return detail::select(most == -detail::infinity(), 1.0f, power_of_score(most - next));
}

// Two states as one: its M, and what multiplies the sums and values of either.
struct Merging {
  float most, first, second;

  PLANQ_HD Merging(float one, float other) {
    most = detail::select(one > other, one, other);
    first = power_of_score(one - most);
    second = power_of_score(other - most);
  }
  PLANQ_HD float sum(float one, float other) const {
    const float a = one * first, b = other * second;
    return a + b;
  }
};

// A natural logarithm as a score, and the logarithm of a state's sum of powers.
PLANQ_HD float score_of(float logarithm) { return logarithm * detail::kLog2E; }
PLANQ_HD float logarithm_of(float most, float sum) {
  constexpr float kLn2 = 0x1.62e43p-1f;
  const float binary = most + log2(sum);
  return kLn2 * binary;
}
// Whether a score makes its whole row NaN.
PLANQ_HD bool is_lost(float score) { return !(score < detail::infinity()); }

PLANQ_HD float inverse_of(float sum) { return detail::quotient_of(1.0f, sum); }
// A row of outputs has no -0.
PLANQ_HD float without_sign_of_zero(float x) { return x + 0.0f; }

// What a row's state of all keys comes to, with its head's sink if there is one. A sink has no
// value, so that it only multiplies the state's.
struct RowFactors {
  float fading = 1, inverse = 0;

  // An output of a row that sees keys and is not lost. `scale`: of the head's values, or null.
  PLANQ_HD float output(float found, const float* scale) const {
    const float faded = found * fading, weighed = faded * inverse;
    return without_sign_of_zero(scale ? weighed * *scale : weighed);
  }
};
struct RowEnd : RowFactors {
  float lse;
  bool lost;

  PLANQ_HD RowEnd(float most, float sum, bool row_is_lost, const float* sink) : lost(row_is_lost) {
    if (sink) {
      const float own = score_of(*sink);
      const Merging merging(most, own);
      lost = lost || is_lost(own);
      fading = merging.first;
      sum = merging.sum(sum, 1.0f);
      most = merging.most;
    }
    inverse = inverse_of(sum);
    lse = lost ? canonical_nan<float>() : logarithm_of(most, sum);
  }
};

// Two rows of outputs with natural logarithms of their sums, as states with L = 1. A state whose M
// is -inf has no keys: its outputs take no part.
struct OutputMerging {
  Merging merging;
  float inverse, lse;
  bool has_first, has_second, lost;

  PLANQ_HD OutputMerging(float one, float other) : merging(score_of(one), score_of(other)) {
    const float first = score_of(one), second = score_of(other);
    has_first = first != -detail::infinity();
    has_second = second != -detail::infinity();
    lost = is_lost(first) || is_lost(second);
    const float sum = merging.sum(1.0f, 1.0f);
    inverse = inverse_of(sum);
    lse = lost ? canonical_nan<float>() : logarithm_of(merging.most, sum);
  }
  PLANQ_HD float of(float one, float other) const {
    if (lost) return canonical_nan<float>();
    if (!has_first && !has_second) return 0.0f;
    const float merged = merging.sum(has_first ? one : 0.0f, has_second ? other : 0.0f);
    return without_sign_of_zero(merged * inverse);
  }
};

}  // namespace planq::math
