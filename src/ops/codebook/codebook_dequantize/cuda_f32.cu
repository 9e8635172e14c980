// codebook_dequantize on CUDA, with elements of float32.
#define PLANQ_ELEMENT Float32
#include "ops/codebook/codebook_dequantize/cuda.cuh"

PLANQ_KERNELS(codebook_dequantize, cuda_f32, kKernels);
