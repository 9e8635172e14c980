// The kernels of tiles.cuh for types of one and two bits.
#include "ops/gguf/linear_gguf/tiles_launch.cuh"

namespace planq::linear_gguf {

PLANQ_MANY_ROWS(Tq1_0);
PLANQ_MANY_ROWS(Tq2_0);
PLANQ_MANY_ROWS(Q1_0);
PLANQ_MANY_ROWS(Q2_0);

}  // namespace planq::linear_gguf
