// The kernels that know nothing of codes, and so serve every output type: those that measure ranges
// before other kernels make codes, and make parameters of them.
#pragma once

#include "ops/affine/dynamic_range_quantize/columns.cuh"
#include "ops/affine/dynamic_range_quantize/elements.cuh"
#include "ops/affine/dynamic_range_quantize/split.cuh"

namespace planq::dynamic_range_quantize {

template <class In>
struct SharedKernels {
  void (*element_ranges)(ElementArgs<In>);
  void (*split_ranges)(SplitArgs<In>);
  void (*flat_ranges)(SplitArgs<In>);
  void (*flat_parameters)(SplitArgs<In>);
  void (*column_ranges)(ColumnArgs<In>);          // rows of any alignment
  void (*aligned_column_ranges)(ColumnArgs<In>);  // rows of whole, aligned vectors
  void (*equal_column_ranges)(ColumnArgs<In>);    // the same, at equal steps
  void (*column_finish)(ColumnArgs<In>);
};

// Defined in shared_f16.cu and its neighbours.
template <class In>
SharedKernels<In> shared_kernels();

}  // namespace planq::dynamic_range_quantize
