// dynamic_range_quantize on CUDA, from float64.
#define PLANQ_ELEMENT Float64
#include "ops/affine/dynamic_range_quantize/cuda.cuh"

PLANQ_KERNELS(dynamic_range_quantize, cuda_f64, kKernels);
