// The kernels of few_rows.cuh for types of 32 elements with one scale.
#include "ops/gguf/linear_gguf/few_rows_launch.cuh"

namespace planq::linear_gguf {

PLANQ_FEW_ROWS(Q4_0);
PLANQ_FEW_ROWS(Q4_1);
PLANQ_FEW_ROWS(Q5_0);
PLANQ_FEW_ROWS(Q5_1);
PLANQ_FEW_ROWS(Q8_0);

}  // namespace planq::linear_gguf
