// group_quantize on CUDA, with elements of bfloat16.
#define PLANQ_ELEMENT BFloat16
#include "cuda/element.cuh"
#include "ops/group/group_quantize/cuda.cuh"

PLANQ_KERNELS(group_quantize, cuda_bf16, kKernels);
