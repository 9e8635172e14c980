// Kernels from codes of a codebook to float16.
#include "ops/codebook/decode_launch.cuh"

PLANQ_DECODING(planq::math::Half);
