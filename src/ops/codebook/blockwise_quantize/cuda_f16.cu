// blockwise_quantize on CUDA, with elements of float16.
#define PLANQ_ELEMENT Float16
#include "ops/codebook/blockwise_quantize/cuda.cuh"

PLANQ_KERNELS(blockwise_quantize, cuda_f16, kKernels);
