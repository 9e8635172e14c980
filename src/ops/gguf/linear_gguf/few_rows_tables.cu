// The kernels of few_rows.cuh for types whose codes stand for numbers of a table.
#include "ops/gguf/linear_gguf/few_rows_launch.cuh"

namespace planq::linear_gguf {

PLANQ_FEW_ROWS(Iq4Nl);
PLANQ_FEW_ROWS(Iq4Xs);
PLANQ_FEW_ROWS(Mxfp4);
PLANQ_FEW_ROWS(Nvfp4);

}  // namespace planq::linear_gguf
