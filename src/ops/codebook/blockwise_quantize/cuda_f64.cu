// blockwise_quantize on CUDA, with elements of float64.
#define PLANQ_ELEMENT Float64
#include "ops/codebook/blockwise_quantize/cuda.cuh"

PLANQ_KERNELS(blockwise_quantize, cuda_f64, kKernels);
