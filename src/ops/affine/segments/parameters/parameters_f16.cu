// The kernels that make parameters of ranges of float16, whatever the codes are.
#include "ops/affine/segments/parameters/kernels.cuh"

PLANQ_PARAMETER_KERNELS(Half);
