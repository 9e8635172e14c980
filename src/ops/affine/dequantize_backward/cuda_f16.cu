// dequantize_backward on CUDA, with elements of float16.
#define PLANQ_ELEMENT Float16
#include "ops/affine/dequantize_backward/cuda.cuh"

PLANQ_KERNELS(dequantize_backward, cuda_f16, kKernels);
