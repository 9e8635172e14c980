// Kernels that measure ranges of bfloat16.
#include "ops/affine/ranges/launch.cuh"

PLANQ_RANGES(planq::math::Bfloat16);
