// embedding on CUDA, with outputs of bfloat16.
#define PLANQ_ELEMENT BFloat16
#include "ops/gather/embedding/cuda.cuh"

PLANQ_KERNELS(embedding, cuda_bf16, kKernels);
