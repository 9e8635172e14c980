// unary on CUDA, with input of float16.
#define PLANQ_ELEMENT Float16
#include "ops/elementwise/unary/cuda.cuh"

PLANQ_KERNELS(unary, cuda_f16, kKernels);
