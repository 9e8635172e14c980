// Kernels that measure sums and maxima of float32.
#include "ops/statistics/sums_launch.cuh"

PLANQ_SUMS(float);
