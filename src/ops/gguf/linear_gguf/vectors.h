// Which operands of a gemm of codes or floats with blocks kernels may access by vectors.
#pragma once

#include <algorithm>

#include "ops/linear/sm80/operands.h"

namespace planq::linear_gguf {

// Whether every row of the input begins at an aligned vector.
inline bool has_input_vectors(const linear::Gemm& gemm) {
  const int bytes = storage_bytes(gemm.input.dtype);
  return (gemm.m == 1 || gemm.input.row_stride * bytes % 16 == 0) &&
         linear::moves_aligned(gemm, linear::kMovedInput, gemm.input.data, 16, 2 * bytes);
}
// Whether four neighbouring outputs are an aligned vector.
inline bool stores_vectors(const linear::Gemm& gemm) {
  const int bytes = storage_bytes(gemm.output_dtype), vector = std::min(4 * bytes, 16);
  return (gemm.m == 1 || gemm.output_row * bytes % vector == 0) &&
         linear::moves_aligned(gemm, linear::kMovedOutput, gemm.output, vector, 2 * bytes);
}

}  // namespace planq::linear_gguf
