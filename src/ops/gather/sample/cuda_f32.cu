// sample on CUDA, with elements of float32.
#define PLANQ_ELEMENT Float32
#include "ops/gather/sample/cuda.cuh"

PLANQ_KERNELS(sample, cuda_f32, kKernels);
