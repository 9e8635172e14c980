// layer_norm on CUDA, of float32.
#define PLANQ_ELEMENT Float32
#include "ops/norm/layer_norm/cuda.cuh"

PLANQ_KERNELS(layer_norm, cuda_f32, kKernels);
