// Kernels that measure ranges of float16.
#include "ops/affine/ranges/launch.cuh"

PLANQ_RANGES(planq::math::Half);
