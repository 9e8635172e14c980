// The kernels of tiles.cuh for types of two bits with grids.
#include "ops/gguf/linear_gguf/tiles_launch.cuh"

namespace planq::linear_gguf {

PLANQ_MANY_ROWS(Iq2Xxs);
PLANQ_MANY_ROWS(Iq2Xs);
PLANQ_MANY_ROWS(Iq2S);

}  // namespace planq::linear_gguf
