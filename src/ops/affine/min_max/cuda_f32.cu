// min_max on CUDA, with elements of float32.
#define PLANQ_ELEMENT Float32
#include "ops/affine/min_max/cuda.cuh"

PLANQ_KERNELS(min_max, cuda_f32, kKernels);
