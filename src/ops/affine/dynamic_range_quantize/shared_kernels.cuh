// Definitions of what shared_kernels.h declares.
#pragma once

#include "ops/affine/dynamic_range_quantize/shared_kernels.h"

namespace planq::dynamic_range_quantize {

template <class In>
SharedKernels<In> shared_kernels() {
  return {.element_ranges = element_ranges<In>,
          .split_ranges = split_ranges<In>,
          .flat_ranges = flat_ranges<In>,
          .flat_parameters = flat_parameters<In>,
          .column_ranges = column_ranges<In, false, false>,
          .aligned_column_ranges = column_ranges<In, true, false>,
          .equal_column_ranges = column_ranges<In, true, true>,
          .column_finish = column_finish<In>};
}

}  // namespace planq::dynamic_range_quantize

// What a file of one input type instantiates.
#define PLANQ_SHARED_KERNELS(In)                   \
  namespace planq::dynamic_range_quantize {        \
  template SharedKernels<In> shared_kernels<In>(); \
  }                                                \
  static_assert(true)
