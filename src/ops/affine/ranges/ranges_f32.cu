// Kernels that measure ranges of float32.
#include "ops/affine/ranges/launch.cuh"

PLANQ_RANGES(float);
