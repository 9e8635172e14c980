// vectorwise_dequantize on CUDA, with elements of bfloat16.
#define PLANQ_ELEMENT BFloat16
#include "ops/outlier/vectorwise_dequantize/cuda.cuh"

PLANQ_KERNELS(vectorwise_dequantize, cuda_bf16, kKernels);
