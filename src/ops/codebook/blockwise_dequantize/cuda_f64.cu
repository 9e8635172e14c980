// blockwise_dequantize on CUDA, with elements of float64.
#define PLANQ_ELEMENT Float64
#include "ops/codebook/blockwise_dequantize/cuda.cuh"

PLANQ_KERNELS(blockwise_dequantize, cuda_f64, kKernels);
