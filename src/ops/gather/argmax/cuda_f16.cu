// argmax on CUDA, with elements of float16.
#define PLANQ_ELEMENT Float16
#include "ops/gather/argmax/cuda.cuh"

PLANQ_KERNELS(argmax, cuda_f16, kKernels);
