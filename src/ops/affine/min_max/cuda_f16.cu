// min_max on CUDA, with elements of float16.
#define PLANQ_ELEMENT Float16
#include "ops/affine/min_max/cuda.cuh"

PLANQ_KERNELS(min_max, cuda_f16, kKernels);
