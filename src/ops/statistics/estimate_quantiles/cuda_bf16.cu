// estimate_quantiles on CUDA, with elements of bfloat16.
#define PLANQ_ELEMENT BFloat16
#include "ops/statistics/estimate_quantiles/cuda.cuh"

PLANQ_KERNELS(estimate_quantiles, cuda_bf16, kKernels);
