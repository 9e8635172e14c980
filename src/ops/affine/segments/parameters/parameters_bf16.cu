// The kernels that make parameters of ranges of bfloat16, whatever the codes are.
#include "ops/affine/segments/parameters/kernels.cuh"

PLANQ_PARAMETER_KERNELS(Bfloat16);
