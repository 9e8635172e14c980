// optimizer_step on CUDA, with states of float32.
#define PLANQ_STATE_FORMAT Float32
#include "ops/optimizer/optimizer_step/cuda.cuh"

PLANQ_KERNELS(optimizer_step, cuda_float32, kKernels);
