// llm_int8_quantize on CUDA, with elements of bfloat16.
#define PLANQ_ELEMENT BFloat16
#include "ops/outlier/llm_int8_quantize/cuda.cuh"

PLANQ_KERNELS(llm_int8_quantize, cuda_bf16, kKernels);
