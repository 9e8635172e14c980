// vectorwise_quantize on CUDA, with elements of bfloat16.
#define PLANQ_ELEMENT BFloat16
#include "ops/outlier/vectorwise_quantize/cuda.cuh"

PLANQ_KERNELS(vectorwise_quantize, cuda_bf16, kKernels);
