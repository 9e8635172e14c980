// The kernels that know nothing of codes, and so serve every output type: those that measure ranges
// before other kernels make codes, and make parameters of them.
#pragma once

#include "ops/affine/segments/columns.cuh"
#include "ops/affine/segments/elements.cuh"
#include "ops/affine/segments/split.cuh"

namespace planq::affine {

template <class In>
struct ParameterKernels {
  void (*element_ranges)(ElementArgs<In>);
  void (*split_ranges)(SplitArgs<In>);
  void (*flat_ranges)(SplitArgs<In>);
  void (*flat_parameters)(SplitArgs<In>);
  void (*column_ranges)(ColumnArgs<In>);          // rows of any alignment
  void (*aligned_column_ranges)(ColumnArgs<In>);  // rows of whole, aligned vectors
  void (*equal_column_ranges)(ColumnArgs<In>);    // the same, at equal steps
  void (*column_finish)(ColumnArgs<In>);
};

// Defined in parameters_f16.cu and its neighbours.
template <class In>
ParameterKernels<In> parameter_kernels();

}  // namespace planq::affine
