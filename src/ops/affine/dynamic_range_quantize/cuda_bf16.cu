// dynamic_range_quantize on CUDA, from bfloat16.
#define PLANQ_ELEMENT BFloat16
#include "ops/affine/dynamic_range_quantize/cuda.cuh"

PLANQ_KERNELS(dynamic_range_quantize, cuda_bf16, kKernels);
