// codebook_quantize on CUDA, with elements of float32.
#define PLANQ_ELEMENT Float32
#include "ops/codebook/codebook_quantize/cuda.cuh"

PLANQ_KERNELS(codebook_quantize, cuda_f32, kKernels);
