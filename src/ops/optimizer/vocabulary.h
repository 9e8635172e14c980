// The enumerations of descriptors of the optimizer family; see core/vocabulary.h.
#pragma once

#include "core/vocabulary.h"

namespace planq {

// clang-format off
#define PLANQ_OPTIMIZER_ALGORITHM_NAMES(_) \
  _(Adam, "adam") _(AdEMAMix, "ademamix") _(Momentum, "momentum") _(RmsProp, "rmsprop") \
  _(Adagrad, "adagrad") _(Lion, "lion") _(Lamb, "lamb") _(Lars, "lars")
PLANQ_DEFINE(OptimizerAlgorithm, PLANQ_OPTIMIZER_ALGORITHM_NAMES)
#define PLANQ_STATE_FORMAT_NAMES(_) \
  _(Float32, "float32") _(Blockwise8, "blockwise8") _(Static8, "static8")
PLANQ_DEFINE(StateFormat, PLANQ_STATE_FORMAT_NAMES)
#define PLANQ_WEIGHT_DECAY_MODE_NAMES(_) \
  _(Decoupled, "decoupled") _(Coupled, "coupled") _(After, "after")
PLANQ_DEFINE(WeightDecayMode, PLANQ_WEIGHT_DECAY_MODE_NAMES)
#define PLANQ_TRUST_RATIO_NAMES(_) \
  _(Default, "default") _(None, "none") _(Layerwise, "layerwise") _(Clip, "clip")
PLANQ_DEFINE(TrustRatio, PLANQ_TRUST_RATIO_NAMES)
#define PLANQ_NON_FINITE_GRADIENT_NAMES(_) \
  _(Propagate, "propagate") _(SkipElement, "skip_element") _(SkipStep, "skip_step")
PLANQ_DEFINE(NonFiniteGradient, PLANQ_NON_FINITE_GRADIENT_NAMES)
// clang-format on

}  // namespace planq
