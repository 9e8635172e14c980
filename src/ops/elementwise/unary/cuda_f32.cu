// unary on CUDA, with input of float32.
#define PLANQ_ELEMENT Float32
#include "ops/elementwise/unary/cuda.cuh"

PLANQ_KERNELS(unary, cuda_f32, kKernels);
