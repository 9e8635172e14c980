// Launches of the integer kernels for every GPU from sm_80 on (mma.sync). All kernels give the same
// bits, and so does the host: what kernels of other engines do not take goes here.
#pragma once

#include "core/bound.h"
#include "core/registry.h"
#include "ops/linear/gemm.h"

namespace planq::linear {

// Loads the kernels that the launches need, for any gemm.
Status preload_sm80();
Status preload_few_rows();

// Takes any gemm (sm80/int8_tiles.cuh).
Status launch_sm80(const Gemm& gemm, const Device& device, Bound& bound);

// For gemms with up to kMostFewRows rows of input (sm80/int8_few_rows.cuh). Operands whose rows are
// not aligned vectors go to launch_sm80.
inline constexpr std::int64_t kMostFewRows = 16;
Status launch_few_rows(const Gemm& gemm, const Device& device, Bound& bound);

// Whether a descriptor's gemms are for launch_few_rows.
inline Reason takes_few_rows(const OperandField& input, const OperandField& weight) {
  for (const OperandField* layout : {&input, &weight}) {
    if (is_four_bit(layout->dtype))
      return Reason::refuse(ReasonKind::DType, "reads codes of 8 bits, not ",
                            name_of(layout->dtype));
    if (layout->transposed)
      return Reason::refuse(ReasonKind::Feature, "reads rows along k, not transposed ones");
  }
  // A batch axis that the weight does not have may become rows of the input.
  const Shape shape = gemm_shape(input, weight);
  const std::int64_t weights = weight.shape.product(0, weight.shape.rank - 2);
  const std::int64_t rows = shape.product(0, shape.rank - 1);
  const std::int64_t most = weights > 0 ? rows / weights : 0;
  if (most <= kMostFewRows) return Reason::accept();
  return Reason::refuse(ReasonKind::Shape, "has up to ", kMostFewRows,
                        " rows of input for a weight, not ", most);
}

}  // namespace planq::linear
