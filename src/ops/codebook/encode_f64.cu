// Kernels from float64 to codes of a codebook.
#include "ops/codebook/encode_launch.cuh"

PLANQ_ENCODING(double);
