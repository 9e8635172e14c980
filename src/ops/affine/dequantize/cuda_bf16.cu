// dequantize on CUDA, with elements of bfloat16.
#define PLANQ_ELEMENT BFloat16
#include "ops/affine/dequantize/cuda.cuh"

PLANQ_KERNELS(dequantize, cuda_bf16, kKernels);
