// rotary_kv_cache_append on the host: its parts.
#include "ops/kv_cache/rotary_kv_cache_append/desc.h"

PLANQ_KERNELS(rotary_kv_cache_append, host, kPartsKernels<Backend::Host>);
