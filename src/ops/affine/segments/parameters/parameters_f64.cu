// The kernels that make parameters of ranges of float64, whatever the codes are.
#include "ops/affine/segments/parameters/kernels.cuh"

PLANQ_PARAMETER_KERNELS(double);
