// The kernels of few_rows.cuh for types of two bits with grids.
#include "ops/gguf/linear_gguf/few_rows_launch.cuh"

namespace planq::linear_gguf {

PLANQ_FEW_ROWS(Iq2Xxs);
PLANQ_FEW_ROWS(Iq2Xs);
PLANQ_FEW_ROWS(Iq2S);

}  // namespace planq::linear_gguf
