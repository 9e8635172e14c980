// The kernels that make parameters of ranges of float32, whatever the codes are.
#include "ops/affine/parameter_kernels.cuh"

PLANQ_PARAMETER_KERNELS(float);
