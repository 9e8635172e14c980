// llm_int8_quantize on CUDA, with elements of float16.
#define PLANQ_ELEMENT Float16
#include "ops/outlier/llm_int8_quantize/cuda.cuh"

PLANQ_KERNELS(llm_int8_quantize, cuda_f16, kKernels);
