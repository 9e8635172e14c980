// attention on CUDA, with queries of float16.
#define PLANQ_ELEMENT Float16
#include "ops/attention/attention/cuda.cuh"

PLANQ_KERNELS(attention, cuda_f16, kKernels);
