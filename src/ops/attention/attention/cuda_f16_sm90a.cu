// attention on CUDA, sm_90a, with queries of float16.
#define PLANQ_ELEMENT Float16
#include "ops/attention/attention/cuda_sm90a.cuh"

PLANQ_KERNELS(attention, cuda_f16_sm90a, kFastKernels);
