// codebook_quantize on CUDA, with elements of float16.
#define PLANQ_ELEMENT Float16
#include "ops/codebook/codebook_quantize/cuda.cuh"

PLANQ_KERNELS(codebook_quantize, cuda_f16, kKernels);
