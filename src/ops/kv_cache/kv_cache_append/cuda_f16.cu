// kv_cache_append on CUDA, of float16.
#define PLANQ_ELEMENT Float16
#include "ops/kv_cache/kv_cache_append/cuda.cuh"

PLANQ_KERNELS(kv_cache_append, cuda_f16, kKernels);
