// gguf_quantize on CUDA, with inputs of float16.
#define PLANQ_ELEMENT Float16
#include "ops/gguf/gguf_quantize/cuda.cuh"

PLANQ_KERNELS(gguf_quantize, cuda_f16, kKernels);
