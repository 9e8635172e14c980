// estimate_quantiles on CUDA, with elements of float32.
#define PLANQ_ELEMENT Float32
#include "ops/statistics/estimate_quantiles/cuda.cuh"

PLANQ_KERNELS(estimate_quantiles, cuda_f32, kKernels);
