// sample on CUDA, with elements of float16.
#define PLANQ_ELEMENT Float16
#include "ops/gather/sample/cuda.cuh"

PLANQ_KERNELS(sample, cuda_f16, kKernels);
