// The enumerations of descriptors of the linear family; see core/vocabulary.h.
#pragma once

#include "core/vocabulary.h"

namespace planq {

// clang-format off
#define PLANQ_ACCUMULATION_NAMES(_) \
  /* a descriptor field that the operator resolves to its default */ \
  _(Unset, "") _(Sequential, "sequential") _(Lanes, "lanes") _(TensorSm90, "tensor_sm90") \
  _(GroupsSm90, "groups_sm90")
PLANQ_DEFINE(Accumulation, PLANQ_ACCUMULATION_NAMES)
#define PLANQ_WEIGHT_LAYOUT_NAMES(_) \
  _(RowMajor, "row_major") _(Reordered, "reordered") _(Packed, "packed")
PLANQ_DEFINE(WeightLayout, PLANQ_WEIGHT_LAYOUT_NAMES)
// clang-format on

}  // namespace planq
