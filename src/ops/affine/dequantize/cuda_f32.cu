// dequantize on CUDA, with elements of float32.
#define PLANQ_ELEMENT Float32
#include "ops/affine/dequantize/cuda.cuh"

PLANQ_KERNELS(dequantize, cuda_f32, kKernels);
