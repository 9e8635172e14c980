// min_max on CUDA, with elements of float64.
#define PLANQ_ELEMENT Float64
#include "ops/affine/min_max/cuda.cuh"

PLANQ_KERNELS(min_max, cuda_f64, kKernels);
