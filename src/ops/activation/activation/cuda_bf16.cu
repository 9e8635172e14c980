// activation on CUDA, with input of bfloat16.
#define PLANQ_ELEMENT BFloat16
#include "ops/activation/activation/cuda.cuh"

PLANQ_KERNELS(activation, cuda_bf16, kKernels);
