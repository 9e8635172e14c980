// The enumerations of descriptors of the activation family; see core/vocabulary.h.
#pragma once

#include "core/vocabulary.h"

namespace planq {

// clang-format off
#define PLANQ_ACTIVATION_FUNCTION_NAMES(_) \
  _(Silu, "silu") _(GeluTanh, "gelu_tanh") _(GeluErf, "gelu_erf") _(Sigmoid, "sigmoid") \
  _(Relu, "relu") _(ReluSquared, "relu_squared")
PLANQ_DEFINE(ActivationFunction, PLANQ_ACTIVATION_FUNCTION_NAMES)
// Where the two sides of a gated activation are: the gate, which the function is of, and the up
// side, which it multiplies.
#define PLANQ_GATE_LAYOUT_NAMES(_) \
  _(Halves, "halves") _(HalvesUpFirst, "halves_up_first") _(Interleaved, "interleaved") \
  _(Separate, "separate")
PLANQ_DEFINE(GateLayout, PLANQ_GATE_LAYOUT_NAMES)
// clang-format on

}  // namespace planq
