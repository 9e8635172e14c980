// The enumerations of descriptors of the position family; see core/vocabulary.h.
#pragma once

#include "core/vocabulary.h"

namespace planq {

// clang-format off
#define PLANQ_ROTARY_PAIRS_NAMES(_) _(Neox, "neox") _(Interleaved, "interleaved")
PLANQ_DEFINE(RotaryPairs, PLANQ_ROTARY_PAIRS_NAMES)
// clang-format on

}  // namespace planq
