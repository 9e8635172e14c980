// The kernels of float64 that every output type shares.
#include "ops/affine/dynamic_range_quantize/shared_kernels.cuh"

PLANQ_SHARED_KERNELS(double);
