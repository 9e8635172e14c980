// rotary_embedding on CUDA, of float16.
#define PLANQ_ELEMENT Float16
#include "ops/position/rotary_embedding/cuda.cuh"

PLANQ_KERNELS(rotary_embedding, cuda_f16, kKernels);
