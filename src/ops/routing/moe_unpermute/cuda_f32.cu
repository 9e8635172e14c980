// moe_unpermute on CUDA, with rows of float32.
#define PLANQ_ELEMENT Float32
#include "ops/routing/moe_unpermute/cuda.cuh"

PLANQ_KERNELS(moe_unpermute, cuda_f32, kKernels);
