// layer_norm on CUDA, of float16.
#define PLANQ_ELEMENT Float16
#include "ops/norm/layer_norm/cuda.cuh"

PLANQ_KERNELS(layer_norm, cuda_f16, kKernels);
