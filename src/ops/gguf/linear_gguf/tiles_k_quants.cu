// The kernels of tiles.cuh for K-quants.
#include "ops/gguf/linear_gguf/tiles_launch.cuh"

namespace planq::linear_gguf {

PLANQ_MANY_ROWS(Q2_K);
PLANQ_MANY_ROWS(Q3_K);
PLANQ_MANY_ROWS(Q4_K);
PLANQ_MANY_ROWS(Q5_K);
PLANQ_MANY_ROWS(Q6_K);

}  // namespace planq::linear_gguf
