// llm_int8_quantize on CUDA, with elements of float32.
#define PLANQ_ELEMENT Float32
#include "ops/outlier/llm_int8_quantize/cuda.cuh"

PLANQ_KERNELS(llm_int8_quantize, cuda_f32, kKernels);
