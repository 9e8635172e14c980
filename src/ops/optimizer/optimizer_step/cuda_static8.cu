// optimizer_step on CUDA, with states as codes, and one maximum a tensor.
#define PLANQ_STATE_FORMAT Static8
#include "ops/optimizer/optimizer_step/cuda.cuh"

PLANQ_KERNELS(optimizer_step, cuda_static8, kKernels);
