// Kernels that measure sums and maxima of float64.
#include "ops/statistics/sums_launch.cuh"

PLANQ_SUMS(double);
