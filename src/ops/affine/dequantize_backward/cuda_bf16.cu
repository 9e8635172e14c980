// dequantize_backward on CUDA, with elements of bfloat16.
#define PLANQ_ELEMENT BFloat16
#include "ops/affine/dequantize_backward/cuda.cuh"

PLANQ_KERNELS(dequantize_backward, cuda_bf16, kKernels);
