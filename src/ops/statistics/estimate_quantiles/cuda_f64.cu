// estimate_quantiles on CUDA, with elements of float64.
#define PLANQ_ELEMENT Float64
#include "ops/statistics/estimate_quantiles/cuda.cuh"

PLANQ_KERNELS(estimate_quantiles, cuda_f64, kKernels);
