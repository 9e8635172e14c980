// fake_quantize on CUDA, with elements of bfloat16.
#define PLANQ_ELEMENT BFloat16
#include "ops/affine/fake_quantize/cuda.cuh"

PLANQ_KERNELS(fake_quantize, cuda_bf16, kKernels);
