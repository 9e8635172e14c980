// Kernels from bfloat16 to codes of a codebook.
#include "ops/codebook/encode_launch.cuh"

PLANQ_ENCODING(planq::math::Bfloat16);
