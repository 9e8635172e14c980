// The kernels of tiles.cuh for types of 32 elements with one scale.
#include "ops/gguf/linear_gguf/tiles_launch.cuh"

namespace planq::linear_gguf {

PLANQ_MANY_ROWS(Q4_0);
PLANQ_MANY_ROWS(Q4_1);
PLANQ_MANY_ROWS(Q5_0);
PLANQ_MANY_ROWS(Q5_1);
PLANQ_MANY_ROWS(Q8_0);

}  // namespace planq::linear_gguf
