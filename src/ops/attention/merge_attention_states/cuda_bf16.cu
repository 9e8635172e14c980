// merge_attention_states on CUDA, of bfloat16.
#define PLANQ_ELEMENT BFloat16
#include "ops/attention/merge_attention_states/cuda.cuh"

PLANQ_KERNELS(merge_attention_states, cuda_bf16, kKernels);
