// activation on CUDA, with input of float16.
#define PLANQ_ELEMENT Float16
#include "ops/activation/activation/cuda.cuh"

PLANQ_KERNELS(activation, cuda_f16, kKernels);
