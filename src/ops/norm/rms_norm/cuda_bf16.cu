// rms_norm on CUDA, of bfloat16.
#define PLANQ_ELEMENT BFloat16
#include "ops/norm/rms_norm/cuda.cuh"

PLANQ_KERNELS(rms_norm, cuda_bf16, kKernels);
