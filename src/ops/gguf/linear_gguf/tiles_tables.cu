// The kernels of tiles.cuh for types whose codes stand for numbers of a table.
#include "ops/gguf/linear_gguf/tiles_launch.cuh"

namespace planq::linear_gguf {

PLANQ_MANY_ROWS(Iq4Nl);
PLANQ_MANY_ROWS(Iq4Xs);
PLANQ_MANY_ROWS(Mxfp4);
PLANQ_MANY_ROWS(Nvfp4);

}  // namespace planq::linear_gguf
