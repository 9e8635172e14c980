// The enumerations of descriptors of the codebook family; see core/vocabulary.h.
#pragma once

#include "core/vocabulary.h"

namespace planq {

// clang-format off
#define PLANQ_CODEBOOK_NAMES(_) \
  _(Given, "given") _(Dynamic, "dynamic") _(Nf4, "nf4") _(Fp4, "fp4") _(Int4, "int4") \
  _(Af4, "af4")
PLANQ_DEFINE(Codebook, PLANQ_CODEBOOK_NAMES)
// clang-format on

}  // namespace planq
