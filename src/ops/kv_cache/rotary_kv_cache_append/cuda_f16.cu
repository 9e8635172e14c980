// rotary_kv_cache_append on CUDA in one launch, of float16.
#define PLANQ_ELEMENT Float16
#include "ops/kv_cache/rotary_kv_cache_append/cuda.cuh"

PLANQ_KERNELS(rotary_kv_cache_append, cuda_f16, kKernels);
