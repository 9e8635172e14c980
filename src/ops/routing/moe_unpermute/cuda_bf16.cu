// moe_unpermute on CUDA, with rows of bfloat16.
#define PLANQ_ELEMENT BFloat16
#include "ops/routing/moe_unpermute/cuda.cuh"

PLANQ_KERNELS(moe_unpermute, cuda_bf16, kKernels);
