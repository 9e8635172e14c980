// Kernels that measure ranges of float64.
#include "ops/affine/ranges/launch.cuh"

PLANQ_RANGES(double);
