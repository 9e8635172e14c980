// codebook_dequantize on CUDA, with elements of float64.
#define PLANQ_ELEMENT Float64
#include "ops/codebook/codebook_dequantize/cuda.cuh"

PLANQ_KERNELS(codebook_dequantize, cuda_f64, kKernels);
