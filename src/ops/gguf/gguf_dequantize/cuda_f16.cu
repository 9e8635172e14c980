// gguf_dequantize on CUDA, with outputs of float16.
#define PLANQ_ELEMENT Float16
#include "ops/gguf/gguf_dequantize/cuda.cuh"

PLANQ_KERNELS(gguf_dequantize, cuda_f16, kKernels);
