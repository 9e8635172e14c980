// Kernels that measure ranges of float32.
#include "ops/affine/ranges_launch.cuh"

PLANQ_RANGES(float);
