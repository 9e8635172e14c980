// activation on CUDA, with input of float32.
#define PLANQ_ELEMENT Float32
#include "ops/activation/activation/cuda.cuh"

PLANQ_KERNELS(activation, cuda_f32, kKernels);
