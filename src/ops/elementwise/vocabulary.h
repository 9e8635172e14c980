// The enumerations of descriptors of the elementwise family; see core/vocabulary.h.
#pragma once

#include "core/vocabulary.h"

namespace planq {

// clang-format off
#define PLANQ_UNARY_FUNCTION_NAMES(_) \
  _(Exp, "exp") _(Exp2, "exp2") _(Log, "log") _(Log2, "log2") _(Rsqrt, "rsqrt") \
  _(Sigmoid, "sigmoid") _(Tanh, "tanh") _(Erf, "erf")
PLANQ_DEFINE(UnaryFunction, PLANQ_UNARY_FUNCTION_NAMES)
// clang-format on

}  // namespace planq
