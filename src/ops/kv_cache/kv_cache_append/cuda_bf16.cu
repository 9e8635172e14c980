// kv_cache_append on CUDA, of bfloat16.
#define PLANQ_ELEMENT BFloat16
#include "ops/kv_cache/kv_cache_append/cuda.cuh"

PLANQ_KERNELS(kv_cache_append, cuda_bf16, kKernels);
