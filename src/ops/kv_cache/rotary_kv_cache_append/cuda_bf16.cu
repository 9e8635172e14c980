// rotary_kv_cache_append on CUDA in one launch, of bfloat16.
#define PLANQ_ELEMENT BFloat16
#include "ops/kv_cache/rotary_kv_cache_append/cuda.cuh"

PLANQ_KERNELS(rotary_kv_cache_append, cuda_bf16, kKernels);
