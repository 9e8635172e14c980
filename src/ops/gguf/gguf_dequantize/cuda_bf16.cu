// gguf_dequantize on CUDA, with outputs of bfloat16.
#define PLANQ_ELEMENT BFloat16
#include "ops/gguf/gguf_dequantize/cuda.cuh"

PLANQ_KERNELS(gguf_dequantize, cuda_bf16, kKernels);
