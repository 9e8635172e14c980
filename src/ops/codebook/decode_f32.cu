// Kernels from codes of a codebook to float32.
#include "ops/codebook/decode_launch.cuh"

PLANQ_DECODING(float);
