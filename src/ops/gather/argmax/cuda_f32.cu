// argmax on CUDA, with elements of float32.
#define PLANQ_ELEMENT Float32
#include "ops/gather/argmax/cuda.cuh"

PLANQ_KERNELS(argmax, cuda_f32, kKernels);
