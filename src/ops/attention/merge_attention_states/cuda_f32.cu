// merge_attention_states on CUDA, of float32.
#define PLANQ_ELEMENT Float32
#include "ops/attention/merge_attention_states/cuda.cuh"

PLANQ_KERNELS(merge_attention_states, cuda_f32, kKernels);
