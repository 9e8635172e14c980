// The enumerations of descriptors of the statistics family; see core/vocabulary.h.
#pragma once

#include "core/vocabulary.h"

namespace planq {

// clang-format off
#define PLANQ_NORM_ORDER_NAMES(_) _(One, "one") _(Two, "two") _(Infinity, "infinity")
PLANQ_DEFINE(NormOrder, PLANQ_NORM_ORDER_NAMES)
// clang-format on

}  // namespace planq
