// The kernels of tiles.cuh for types of one and of three bits with grids.
#include "ops/gguf/linear_gguf/tiles_launch.cuh"

namespace planq::linear_gguf {

PLANQ_MANY_ROWS(Iq3Xxs);
PLANQ_MANY_ROWS(Iq3S);
PLANQ_MANY_ROWS(Iq1S);
PLANQ_MANY_ROWS(Iq1M);

}  // namespace planq::linear_gguf
