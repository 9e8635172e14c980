// sample on CUDA, with elements of bfloat16.
#define PLANQ_ELEMENT BFloat16
#include "ops/gather/sample/cuda.cuh"

PLANQ_KERNELS(sample, cuda_bf16, kKernels);
