// fake_quantize_backward on CUDA, with elements of float16.
#define PLANQ_ELEMENT Float16
#include "ops/affine/fake_quantize_backward/cuda.cuh"

PLANQ_KERNELS(fake_quantize_backward, cuda_f16, kKernels);
