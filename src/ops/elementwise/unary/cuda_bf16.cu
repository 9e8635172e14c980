// unary on CUDA, with input of bfloat16.
#define PLANQ_ELEMENT BFloat16
#include "ops/elementwise/unary/cuda.cuh"

PLANQ_KERNELS(unary, cuda_bf16, kKernels);
