// The enumerations of descriptors of the outlier family; see core/vocabulary.h.
#pragma once

#include "core/vocabulary.h"

namespace planq {

// clang-format off
#define PLANQ_LAYOUT_NAMES(_) \
  _(Row, "row") _(Col, "col") _(Col32, "col32") _(ColTuring, "col_turing") \
  _(ColAmpere, "col_ampere")
PLANQ_DEFINE(Layout, PLANQ_LAYOUT_NAMES)
#define PLANQ_VECTORWISE_FORM_NAMES(_) \
  _(Linear, "linear") _(Row, "row") _(Vector, "vector") _(Zeropoint, "zeropoint") \
  _(RowZeropoint, "row_zeropoint") _(VectorZeropoint, "vector_zeropoint") \
  _(Truncated, "truncated")
PLANQ_DEFINE(VectorwiseForm, PLANQ_VECTORWISE_FORM_NAMES)
// clang-format on

}  // namespace planq
