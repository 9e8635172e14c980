// The kernels of few_rows.cuh for types of one and two bits.
#include "ops/gguf/linear_gguf/few_rows_launch.cuh"

namespace planq::linear_gguf {

PLANQ_FEW_ROWS(Tq1_0);
PLANQ_FEW_ROWS(Tq2_0);
PLANQ_FEW_ROWS(Q1_0);
PLANQ_FEW_ROWS(Q2_0);

}  // namespace planq::linear_gguf
