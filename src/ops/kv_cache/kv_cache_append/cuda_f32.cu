// kv_cache_append on CUDA, of float32.
#define PLANQ_ELEMENT Float32
#include "ops/kv_cache/kv_cache_append/cuda.cuh"

PLANQ_KERNELS(kv_cache_append, cuda_f32, kKernels);
