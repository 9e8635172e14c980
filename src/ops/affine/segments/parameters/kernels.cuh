// Definitions of what kernels.h declares.
#pragma once

#include "ops/affine/segments/parameters/kernels.h"

namespace planq::affine {

template <class In>
ParameterKernels<In> parameter_kernels() {
  return {.element_ranges = element_ranges<In>,
          .split_ranges = split_ranges<In>,
          .flat_ranges = flat_ranges<In>,
          .flat_parameters = flat_parameters<In>,
          .column_ranges = column_ranges<In, false, false>,
          .aligned_column_ranges = column_ranges<In, true, false>,
          .equal_column_ranges = column_ranges<In, true, true>,
          .column_finish = column_finish<In>};
}

}  // namespace planq::affine

// What a file of one input type instantiates.
#define PLANQ_PARAMETER_KERNELS(In)                      \
  namespace planq::affine {                              \
  template ParameterKernels<In> parameter_kernels<In>(); \
  }                                                      \
  static_assert(true)
