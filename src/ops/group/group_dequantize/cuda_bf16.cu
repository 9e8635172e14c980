// group_dequantize on CUDA, to elements of bfloat16.
#define PLANQ_ELEMENT BFloat16
#include "cuda/element.cuh"
#include "ops/group/group_dequantize/cuda.cuh"

PLANQ_KERNELS(group_dequantize, cuda_bf16, kKernels);
