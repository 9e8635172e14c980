// Kernels from float16 to codes of a codebook.
#include "ops/codebook/encode_launch.cuh"

PLANQ_ENCODING(planq::math::Half);
