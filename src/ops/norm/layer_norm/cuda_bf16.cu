// layer_norm on CUDA, of bfloat16.
#define PLANQ_ELEMENT BFloat16
#include "ops/norm/layer_norm/cuda.cuh"

PLANQ_KERNELS(layer_norm, cuda_bf16, kKernels);
