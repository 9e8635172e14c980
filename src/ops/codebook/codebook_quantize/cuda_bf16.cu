// codebook_quantize on CUDA, with elements of bfloat16.
#define PLANQ_ELEMENT BFloat16
#include "ops/codebook/codebook_quantize/cuda.cuh"

PLANQ_KERNELS(codebook_quantize, cuda_bf16, kKernels);
