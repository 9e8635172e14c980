// quantize on CUDA, with elements of float32.
#define PLANQ_ELEMENT Float32
#include "ops/affine/quantize/cuda.cuh"

PLANQ_KERNELS(quantize, cuda_f32, kKernels);
