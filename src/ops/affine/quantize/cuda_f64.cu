// quantize on CUDA, with elements of float64.
#define PLANQ_ELEMENT Float64
#include "ops/affine/quantize/cuda.cuh"

PLANQ_KERNELS(quantize, cuda_f64, kKernels);
