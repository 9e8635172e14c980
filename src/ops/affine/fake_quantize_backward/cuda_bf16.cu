// fake_quantize_backward on CUDA, with elements of bfloat16.
#define PLANQ_ELEMENT BFloat16
#include "ops/affine/fake_quantize_backward/cuda.cuh"

PLANQ_KERNELS(fake_quantize_backward, cuda_bf16, kKernels);
