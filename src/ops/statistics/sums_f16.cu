// Kernels that measure sums and maxima of float16.
#include "ops/statistics/sums_launch.cuh"

PLANQ_SUMS(planq::math::Half);
