// attention on CUDA, sm_90a, with queries of bfloat16.
#define PLANQ_ELEMENT BFloat16
#include "ops/attention/attention/cuda_sm90a.cuh"

PLANQ_KERNELS(attention, cuda_bf16_sm90a, kFastKernels);
