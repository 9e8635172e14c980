// gguf_dequantize on CUDA, with outputs of float32.
#define PLANQ_ELEMENT Float32
#include "ops/gguf/gguf_dequantize/cuda.cuh"

PLANQ_KERNELS(gguf_dequantize, cuda_f32, kKernels);
