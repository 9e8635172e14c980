// add on CUDA, with input of float16.
#define PLANQ_ELEMENT Float16
#include "ops/elementwise/add/cuda.cuh"

PLANQ_KERNELS(add, cuda_f16, kKernels);
