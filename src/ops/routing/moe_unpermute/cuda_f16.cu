// moe_unpermute on CUDA, with rows of float16.
#define PLANQ_ELEMENT Float16
#include "ops/routing/moe_unpermute/cuda.cuh"

PLANQ_KERNELS(moe_unpermute, cuda_f16, kKernels);
