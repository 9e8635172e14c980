// blockwise_dequantize on CUDA, with elements of float16.
#define PLANQ_ELEMENT Float16
#include "ops/codebook/blockwise_dequantize/cuda.cuh"

PLANQ_KERNELS(blockwise_dequantize, cuda_f16, kKernels);
