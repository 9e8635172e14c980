// dequantize on CUDA, with elements of float16.
#define PLANQ_ELEMENT Float16
#include "ops/affine/dequantize/cuda.cuh"

PLANQ_KERNELS(dequantize, cuda_f16, kKernels);
