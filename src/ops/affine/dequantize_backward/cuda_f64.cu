// dequantize_backward on CUDA, with elements of float64.
#define PLANQ_ELEMENT Float64
#include "ops/affine/dequantize_backward/cuda.cuh"

PLANQ_KERNELS(dequantize_backward, cuda_f64, kKernels);
