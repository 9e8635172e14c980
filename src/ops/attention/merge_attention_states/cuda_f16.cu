// merge_attention_states on CUDA, of float16.
#define PLANQ_ELEMENT Float16
#include "ops/attention/merge_attention_states/cuda.cuh"

PLANQ_KERNELS(merge_attention_states, cuda_f16, kKernels);
