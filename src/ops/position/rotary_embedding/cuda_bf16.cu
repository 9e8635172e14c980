// rotary_embedding on CUDA, of bfloat16.
#define PLANQ_ELEMENT BFloat16
#include "ops/position/rotary_embedding/cuda.cuh"

PLANQ_KERNELS(rotary_embedding, cuda_bf16, kKernels);
