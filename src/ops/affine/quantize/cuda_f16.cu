// quantize on CUDA, with elements of float16.
#define PLANQ_ELEMENT Float16
#include "ops/affine/quantize/cuda.cuh"

PLANQ_KERNELS(quantize, cuda_f16, kKernels);
