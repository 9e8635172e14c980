// attention on CUDA, with queries of bfloat16.
#define PLANQ_ELEMENT BFloat16
#include "ops/attention/attention/cuda.cuh"

PLANQ_KERNELS(attention, cuda_bf16, kKernels);
