// blockwise_dequantize on CUDA, with elements of bfloat16.
#define PLANQ_ELEMENT BFloat16
#include "ops/codebook/blockwise_dequantize/cuda.cuh"

PLANQ_KERNELS(blockwise_dequantize, cuda_bf16, kKernels);
