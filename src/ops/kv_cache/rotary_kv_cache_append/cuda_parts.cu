// rotary_kv_cache_append on CUDA by the launches of its parts.
#include "ops/kv_cache/rotary_kv_cache_append/desc.h"

PLANQ_KERNELS(rotary_kv_cache_append, cuda_parts, kPartsKernels<Backend::Cuda>);
