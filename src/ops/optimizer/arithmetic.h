// What an optimizer does with one element, for host and device: docs/numerics/optimizer.md has the
// contract. Every operation is one IEEE operation in float32, in the order in which it is written;
// scalars alone are computed in float64 and rounded once.
#pragma once

#include <cstdint>

#include "core/scalar.h"
#include "math/ieee.h"
#include "ops/optimizer/vocabulary.h"

namespace planq::optimizer {

using math::root;

inline constexpr int kMostStates = 3;

// ---- what a descriptor asks for ----------------------------------------------------------------

constexpr int count_states(OptimizerAlgorithm algorithm, bool centered) {
  using enum OptimizerAlgorithm;
  if (algorithm == AdEMAMix) return 3;
  if (algorithm == Adam || algorithm == Lamb) return 2;
  return algorithm == RmsProp && centered ? 2 : 1;
}
// Whether a state has negative values: all but averages and sums of squares.
constexpr bool is_signed_state(OptimizerAlgorithm algorithm, int state) {
  using enum OptimizerAlgorithm;
  if (algorithm == Adam || algorithm == AdEMAMix || algorithm == Lamb) return state != 1;
  if (algorithm == RmsProp) return state == 1;
  return algorithm != Adagrad;
}

// What is the same for all elements and all steps.
struct Rule {
  // Lamb and Lars have the trust ratio LAYERWISE here: clipped, they are Adam and Momentum.
  OptimizerAlgorithm algorithm;
  bool decoupled, coupled, after;  // where weight decay enters; nowhere: in the algorithm's update
  bool nesterov, centered;
  bool skips_zeros, skips_nonfinite;
  bool clips;
  int states;

  constexpr bool has_trust() const {
    return clips || algorithm == OptimizerAlgorithm::Lamb || algorithm == OptimizerAlgorithm::Lars;
  }
};

template <class Fields>
constexpr Rule rule_of(const Fields& f) {
  using enum OptimizerAlgorithm;
  const bool clips = f.trust_ratio == TrustRatio::Clip;
  const bool layerwise = f.trust_ratio == TrustRatio::Layerwise;
  Rule rule{};
  rule.algorithm = f.algorithm;
  if (clips && f.algorithm == Lamb) rule.algorithm = Adam;
  if (clips && f.algorithm == Lars) rule.algorithm = Momentum;
  rule.decoupled = !layerwise && f.weight_decay_mode == WeightDecayMode::Decoupled;
  rule.coupled = !layerwise && f.weight_decay_mode == WeightDecayMode::Coupled;
  rule.after = !layerwise && f.weight_decay_mode == WeightDecayMode::After;
  rule.nesterov = f.nesterov;
  rule.centered = f.centered;
  rule.skips_zeros = f.skip_zeros;
  rule.skips_nonfinite = f.nonfinite == NonFiniteGradient::SkipElement;
  rule.clips = clips;
  rule.states = count_states(f.algorithm, f.centered);
  return rule;
}

// ---- scalars -----------------------------------------------------------------------------------

// Where the scalars of a step are.
struct Sources {
  RealScalar lr, beta1, beta2, beta3, alpha, eps, weight_decay, gradient_scale, max_unorm;
  RealScalar found_nonfinite;  // 0: the step is taken
  IntegerScalar step;
  bool advances;  // the step is counted before it is taken

  // Whether something has to be read when the step is taken.
  bool in_memory() const {
    for (const RealScalar* each : {&lr, &beta1, &beta2, &beta3, &alpha, &eps, &weight_decay,
                                   &gradient_scale, &max_unorm, &found_nonfinite})
      if (each->data) return true;
    return step.data != nullptr;
  }
};

// The scalars of a step as elements meet them.
struct Factors {
  float gradient;             // by which gradients are multiplied
  float beta1, beta2, beta3;  // what remains of a state
  float rest1, rest2, rest3;  // what enters it
  float alpha, eps;           // eps as it is added to a root
  float rate;                 // by which updates are multiplied
  float shrink, decay;        // 1 - lr weight_decay, weight_decay
  float ratio;                // lamb: of the bias corrections; ademamix: of the first
  float norm_ratio;           // what makes the norm of updates that of corrected ones
  float max_unorm;
  bool decays, first, clips, skips;  // first: of all steps; skips: nothing is done
  std::int64_t step;
};

// By squaring, the lowest bit first.
PLANQ_HD double power(double base, std::int64_t exponent) {
  double result = 1;
  for (; exponent > 0; exponent /= 2) {
    if (exponent % 2 != 0) result = result * base;
    base = base * base;
  }
  return result;
}

// The algorithms with bias corrections.
PLANQ_HD void correct_bias(OptimizerAlgorithm algorithm, double beta1, double beta2, double lr,
                           double eps, Factors& f) {
  using enum OptimizerAlgorithm;
  const double c1 = 1 - power(beta1, f.step), c2 = root(1 - power(beta2, f.step));
  f.eps = static_cast<float>(eps * c2);
  f.ratio = static_cast<float>(algorithm == AdEMAMix ? 1 / c1 : c2 / c1);
  if (algorithm == Adam) f.rate = static_cast<float>(lr * c2 / c1);
  if (algorithm == AdEMAMix) f.rate = static_cast<float>(lr * c2);
  if (algorithm == Adam) f.norm_ratio = static_cast<float>(c2 / c1);
  if (algorithm == AdEMAMix) f.norm_ratio = static_cast<float>(c2);
}

PLANQ_HD Factors factors_of(const Rule& rule, const Sources& from) {
  using enum OptimizerAlgorithm;
  const double lr = from.lr.get(), weight_decay = from.weight_decay.get();
  const double beta1 = from.beta1.get(), beta2 = from.beta2.get(), beta3 = from.beta3.get();
  const double max_unorm = from.max_unorm.get(), eps = from.eps.get();
  Factors f{};
  f.step = from.step.get() + (from.advances ? 1 : 0);
  f.first = f.step == 1;
  f.skips = from.found_nonfinite.get() != 0;
  f.gradient = static_cast<float>(from.gradient_scale.get());
  f.beta1 = static_cast<float>(beta1), f.rest1 = static_cast<float>(1 - beta1);
  f.beta2 = static_cast<float>(beta2), f.rest2 = static_cast<float>(1 - beta2);
  f.beta3 = static_cast<float>(beta3), f.rest3 = static_cast<float>(1 - beta3);
  f.alpha = static_cast<float>(from.alpha.get());
  f.eps = static_cast<float>(eps);
  f.rate = static_cast<float>(lr);
  f.decays = weight_decay != 0;
  f.shrink = static_cast<float>(1 - lr * weight_decay);
  f.decay = static_cast<float>(weight_decay);
  f.max_unorm = static_cast<float>(max_unorm);
  f.clips = max_unorm > 0;
  f.norm_ratio = 1;
  if (rule.algorithm == Adam || rule.algorithm == AdEMAMix || rule.algorithm == Lamb)
    correct_bias(rule.algorithm, beta1, beta2, lr, eps, f);
  return f;
}

// ---- one element -------------------------------------------------------------------------------

struct States {
  float at[kMostStates];
};

PLANQ_HD bool is_untouched(const Rule& rule, float gradient) {
  return (rule.skips_zeros && gradient == 0) ||
         (rule.skips_nonfinite && !math::is_finite(gradient));
}

// By what a trust ratio multiplies: gradients on their way into the state, or updates.
struct Trust {
  float state = 1, update = 1;
};

PLANQ_HD float mixed(float keep, float old, float take, float fresh) {
  return keep * old + take * fresh;
}
PLANQ_HD float sign_of(float x) {
  const float sign = static_cast<float>((x > 0) - (x < 0));
  return math::is_nan(x) ? x : sign;
}
// max(x, +0), of a NaN itself.
PLANQ_HD float positive_part(float x) { return x > 0 || math::is_nan(x) ? x : 0.0f; }

// The update of most algorithms is a quotient: numerator / (root(radicand) + eps).
constexpr bool divides(OptimizerAlgorithm algorithm) {
  using enum OptimizerAlgorithm;
  return algorithm != Momentum && algorithm != Lars && algorithm != Lion;
}
struct Fraction {
  float numerator, radicand;
};
PLANQ_HD float quotient_of(const Factors& f, const Fraction& fraction) {
  return fraction.numerator / (root(fraction.radicand) + f.eps);
}

// The new states; and the update, where it is no quotient. `g` is as it enters the state.
template <OptimizerAlgorithm kAlgorithm>
PLANQ_HD float advance(const Rule& rule, const Factors& f, float g, States& s) {
  using enum OptimizerAlgorithm;
  float &first = s.at[0], &second = s.at[1], &third = s.at[2];
  if constexpr (kAlgorithm == Momentum || kAlgorithm == Lars) {
    first = f.first ? g : mixed(f.beta1, first, f.rest2, g);
    return rule.nesterov ? g + f.beta1 * first : first;
  } else if constexpr (kAlgorithm == Lion) {
    const float direction = sign_of(mixed(f.beta1, first, f.rest1, g));
    first = mixed(f.beta2, first, f.rest2, g);
    return direction;
  } else if constexpr (kAlgorithm == Adagrad) {
    first = first + g * g;
  } else if constexpr (kAlgorithm == RmsProp) {
    first = mixed(f.beta1, first, f.rest1, g * g);
    if (rule.centered) second = mixed(f.beta1, second, f.rest1, g);
  } else {
    first = mixed(f.beta1, first, f.rest1, g);
    second = mixed(f.beta2, second, f.rest2, g * g);
    if constexpr (kAlgorithm == AdEMAMix) third = mixed(f.beta3, third, f.rest3, g);
  }
  return 0;
}

// Of new states, what the update is the quotient of.
template <OptimizerAlgorithm kAlgorithm>
PLANQ_HD Fraction fraction_of(const Rule& rule, const Factors& f, float g, const States& s) {
  using enum OptimizerAlgorithm;
  static_assert(divides(kAlgorithm));
  const float first = s.at[0], second = s.at[1];
  if constexpr (kAlgorithm == Adagrad) return {g, first};
  if constexpr (kAlgorithm == RmsProp)
    return {g, rule.centered ? positive_part(first - second * second) : first};
  if constexpr (kAlgorithm == AdEMAMix) return {f.ratio * first + f.alpha * s.at[2], second};
  return {first, second};
}
// The update out of that quotient.
template <OptimizerAlgorithm kAlgorithm>
PLANQ_HD float update_of(const Factors& f, float p, float quotient) {
  if constexpr (kAlgorithm != OptimizerAlgorithm::Lamb) return quotient;
  const float corrected = f.ratio * quotient;
  return f.decays ? corrected + f.decay * p : corrected;
}

// A parameter and a gradient with the decay's part in them.
PLANQ_HD float shrunk(const Factors& f, float p) { return p * f.shrink; }
PLANQ_HD float pulled(const Factors& f, float p, float g) { return g + f.decay * p; }

// An element on its way: `parameter` is what the update is taken from.
struct Advanced {
  float parameter, update;
  States states;
};

// Of a gradient that is scaled, in float32.
template <OptimizerAlgorithm kAlgorithm>
PLANQ_HD Advanced advanced(const Rule& rule, const Factors& f, float p, float g,
                           const States& states, const Trust& trust) {
  if (rule.decoupled && f.decays) p = shrunk(f, p);
  if (rule.coupled && f.decays) g = pulled(f, p, g);
  if constexpr (kAlgorithm == OptimizerAlgorithm::Lars)
    g = trust.state * (f.decays ? pulled(f, p, g) : g);
  Advanced result{p, 0, states};
  result.update = advance<kAlgorithm>(rule, f, g, result.states);
  if constexpr (divides(kAlgorithm)) {
    const Fraction fraction = fraction_of<kAlgorithm>(rule, f, g, result.states);
    result.update = update_of<kAlgorithm>(f, p, quotient_of(f, fraction));
  }
  return result;
}

// The new parameter, before it is rounded to its type.
PLANQ_HD float stepped(const Factors& f, float p, float update, const Trust& trust) {
  return p - (trust.update * f.rate) * update;
}
PLANQ_HD float updated(const Rule& rule, const Factors& f, const Advanced& a, const Trust& trust) {
  const float p = stepped(f, a.parameter, a.update, trust);
  return rule.after && f.decays ? shrunk(f, p) : p;
}

// ---- trust ratios ------------------------------------------------------------------------------

// Norms of a tensor. `other` is the gradient's for lars, else the update's; elements that stay as
// they are count as 0 in it.
struct Norms {
  float parameter, other;
};

// As it is told to the caller: lars tells the norm of its update later.
PLANQ_HD float told_norm(const Rule& rule, const Factors& f, const Norms& norms) {
  const bool corrected = rule.clips && (rule.algorithm == OptimizerAlgorithm::Adam ||
                                        rule.algorithm == OptimizerAlgorithm::AdEMAMix);
  return corrected ? f.norm_ratio * norms.other : norms.other;
}

PLANQ_HD Trust trust_of(const Rule& rule, const Factors& f, const Norms& norms) {
  Trust trust;
  if (rule.clips) {
    const float bound = f.max_unorm * norms.parameter, norm = told_norm(rule, f, norms);
    if (f.clips && norm > bound) trust.update = bound / norm;
    return trust;
  }
  if (norms.parameter == 0 || norms.other == 0) return trust;
  if (rule.algorithm == OptimizerAlgorithm::Lamb) {
    trust.update = norms.parameter / norms.other;
  } else {
    const float pull = f.decays ? norms.other + f.decay * norms.parameter : norms.other;
    trust.state = (f.max_unorm * norms.parameter) / (pull + f.eps);
  }
  return trust;
}

}  // namespace planq::optimizer
