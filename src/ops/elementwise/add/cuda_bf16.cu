// add on CUDA, with input of bfloat16.
#define PLANQ_ELEMENT BFloat16
#include "ops/elementwise/add/cuda.cuh"

PLANQ_KERNELS(add, cuda_bf16, kKernels);
