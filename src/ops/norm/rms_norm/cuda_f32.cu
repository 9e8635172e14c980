// rms_norm on CUDA, of float32.
#define PLANQ_ELEMENT Float32
#include "ops/norm/rms_norm/cuda.cuh"

PLANQ_KERNELS(rms_norm, cuda_f32, kKernels);
