// argmax on CUDA, with elements of bfloat16.
#define PLANQ_ELEMENT BFloat16
#include "ops/gather/argmax/cuda.cuh"

PLANQ_KERNELS(argmax, cuda_bf16, kKernels);
