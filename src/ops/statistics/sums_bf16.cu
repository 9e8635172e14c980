// Kernels that measure sums and maxima of bfloat16.
#include "ops/statistics/sums_launch.cuh"

PLANQ_SUMS(planq::math::Bfloat16);
