// dequantize on CUDA, with elements of float64.
#define PLANQ_ELEMENT Float64
#include "ops/affine/dequantize/cuda.cuh"

PLANQ_KERNELS(dequantize, cuda_f64, kKernels);
