// Kernels that measure ranges of float64.
#include "ops/affine/ranges_launch.cuh"

PLANQ_RANGES(double);
