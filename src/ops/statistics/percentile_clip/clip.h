// What both backends make of a squared norm.
#pragma once

#include "core/scalar.h"
#include "ops/statistics/percentile_clip/desc.h"
#include "ops/statistics/quantiles.h"
#include "ops/statistics/sums.h"

namespace planq::percentile_clip {

template <class C>
struct Clip {
  C* history;
  IntegerScalar step;
  std::int64_t percentile;
  C *gradient_scale, *norm, *clip_value;

  explicit Clip(const Call& call)
      : history(to(call, kHistory)),
        step(integer_of(call.operands[kStep])),
        percentile(call.fields<Fields>().percentile),
        gradient_scale(to(call, kGradientScale)),
        norm(to(call, kNorm)),
        clip_value(to(call, kClipValue)) {}

  // What the history has at `place` after this step. The first step fills all places.
  PLANQ_HD C remembered(C square_sum, int place) const {
    const std::int64_t now = step.get(), rest = now % kRemembered;
    const bool enters = now == 1 || place == (rest < 0 ? rest + kRemembered : rest);
    return enters && math::is_finite(square_sum) ? square_sum : history[place];
  }

  // Where an entry stands among all in ascending order; of equal ones the first comes first.
  PLANQ_HD static std::int64_t rank_of(const math::OrderKey<C>* keys, int place) {
    std::int64_t rank = 0;
    for (int i = 0; i < kRemembered; ++i)
      rank += keys[i] < keys[place] || (keys[i] == keys[place] && i < place);
    return rank;
  }

  // `bound`: the key of the squared norm that is the percentile.
  PLANQ_HD void store(C square_sum, math::OrderKey<C> bound) const {
    const C own = math::root(square_sum), clip = math::root(math::value_of_order<C>(bound));
    *norm = stored_measure(own);
    *clip_value = stored_measure(clip);
    *gradient_scale = own > clip ? clip / own : C{1};
  }

 private:
  static C* to(const Call& call, Operand operand) {
    return static_cast<C*>(call.operands[operand].data);
  }
};

}  // namespace planq::percentile_clip
