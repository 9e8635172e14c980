// rms_norm on CUDA, of float16.
#define PLANQ_ELEMENT Float16
#include "ops/norm/rms_norm/cuda.cuh"

PLANQ_KERNELS(rms_norm, cuda_f16, kKernels);
