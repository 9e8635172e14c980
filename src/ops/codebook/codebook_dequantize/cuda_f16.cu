// codebook_dequantize on CUDA, with elements of float16.
#define PLANQ_ELEMENT Float16
#include "ops/codebook/codebook_dequantize/cuda.cuh"

PLANQ_KERNELS(codebook_dequantize, cuda_f16, kKernels);
