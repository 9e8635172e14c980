// Kernels from codes of a codebook to bfloat16.
#include "ops/codebook/decode_launch.cuh"

PLANQ_DECODING(planq::math::Bfloat16);
