// gguf_quantize on CUDA, with inputs of bfloat16.
#define PLANQ_ELEMENT BFloat16
#include "ops/gguf/gguf_quantize/cuda.cuh"

PLANQ_KERNELS(gguf_quantize, cuda_bf16, kKernels);
