// Kernels from codes of a codebook to float64.
#include "ops/codebook/decode_launch.cuh"

PLANQ_DECODING(double);
