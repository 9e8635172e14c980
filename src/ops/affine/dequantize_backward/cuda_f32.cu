// dequantize_backward on CUDA, with elements of float32.
#define PLANQ_ELEMENT Float32
#include "ops/affine/dequantize_backward/cuda.cuh"

PLANQ_KERNELS(dequantize_backward, cuda_f32, kKernels);
