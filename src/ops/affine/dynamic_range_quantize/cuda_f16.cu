// dynamic_range_quantize on CUDA, from float16.
#define PLANQ_ELEMENT Float16
#include "ops/affine/dynamic_range_quantize/cuda.cuh"

PLANQ_KERNELS(dynamic_range_quantize, cuda_f16, kKernels);
