// min_max on CUDA, with elements of bfloat16.
#define PLANQ_ELEMENT BFloat16
#include "ops/affine/min_max/cuda.cuh"

PLANQ_KERNELS(min_max, cuda_bf16, kKernels);
