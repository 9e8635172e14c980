// gguf_quantize on CUDA, with inputs of float32.
#define PLANQ_ELEMENT Float32
#include "ops/gguf/gguf_quantize/cuda.cuh"

PLANQ_KERNELS(gguf_quantize, cuda_f32, kKernels);
