// dynamic_range_quantize on CUDA, from float32.
#define PLANQ_ELEMENT Float32
#include "ops/affine/dynamic_range_quantize/cuda.cuh"

PLANQ_KERNELS(dynamic_range_quantize, cuda_f32, kKernels);
