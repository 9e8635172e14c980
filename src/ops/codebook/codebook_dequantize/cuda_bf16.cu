// codebook_dequantize on CUDA, with elements of bfloat16.
#define PLANQ_ELEMENT BFloat16
#include "ops/codebook/codebook_dequantize/cuda.cuh"

PLANQ_KERNELS(codebook_dequantize, cuda_bf16, kKernels);
