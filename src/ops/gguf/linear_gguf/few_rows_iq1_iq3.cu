// The kernels of few_rows.cuh for types of one and of three bits with grids.
#include "ops/gguf/linear_gguf/few_rows_launch.cuh"

namespace planq::linear_gguf {

PLANQ_FEW_ROWS(Iq3Xxs);
PLANQ_FEW_ROWS(Iq3S);
PLANQ_FEW_ROWS(Iq1S);
PLANQ_FEW_ROWS(Iq1M);

}  // namespace planq::linear_gguf
