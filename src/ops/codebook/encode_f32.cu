// Kernels from float32 to codes of a codebook.
#include "ops/codebook/encode_launch.cuh"

PLANQ_ENCODING(float);
