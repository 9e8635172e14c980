// estimate_quantiles on CUDA, with elements of float16.
#define PLANQ_ELEMENT Float16
#include "ops/statistics/estimate_quantiles/cuda.cuh"

PLANQ_KERNELS(estimate_quantiles, cuda_f16, kKernels);
