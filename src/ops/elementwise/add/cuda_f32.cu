// add on CUDA, with input of float32.
#define PLANQ_ELEMENT Float32
#include "ops/elementwise/add/cuda.cuh"

PLANQ_KERNELS(add, cuda_f32, kKernels);
