// blockwise_quantize on CUDA, with elements of bfloat16.
#define PLANQ_ELEMENT BFloat16
#include "ops/codebook/blockwise_quantize/cuda.cuh"

PLANQ_KERNELS(blockwise_quantize, cuda_bf16, kKernels);
