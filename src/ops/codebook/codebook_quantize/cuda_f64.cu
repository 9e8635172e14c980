// codebook_quantize on CUDA, with elements of float64.
#define PLANQ_ELEMENT Float64
#include "ops/codebook/codebook_quantize/cuda.cuh"

PLANQ_KERNELS(codebook_quantize, cuda_f64, kKernels);
