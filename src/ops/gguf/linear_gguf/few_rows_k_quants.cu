// The kernels of few_rows.cuh for K-quants.
#include "ops/gguf/linear_gguf/few_rows_launch.cuh"

namespace planq::linear_gguf {

PLANQ_FEW_ROWS(Q2_K);
PLANQ_FEW_ROWS(Q3_K);
PLANQ_FEW_ROWS(Q4_K);
PLANQ_FEW_ROWS(Q5_K);
PLANQ_FEW_ROWS(Q6_K);

}  // namespace planq::linear_gguf
