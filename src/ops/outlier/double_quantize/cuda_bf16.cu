// double_quantize on CUDA, with elements of bfloat16.
#define PLANQ_ELEMENT BFloat16
#include "ops/outlier/double_quantize/cuda.cuh"

PLANQ_KERNELS(double_quantize, cuda_bf16, kKernels);
