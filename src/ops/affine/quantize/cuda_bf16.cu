// quantize on CUDA, with elements of bfloat16.
#define PLANQ_ELEMENT BFloat16
#include "ops/affine/quantize/cuda.cuh"

PLANQ_KERNELS(quantize, cuda_bf16, kKernels);
