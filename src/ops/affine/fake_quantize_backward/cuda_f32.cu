// fake_quantize_backward on CUDA, with elements of float32.
#define PLANQ_ELEMENT Float32
#include "ops/affine/fake_quantize_backward/cuda.cuh"

PLANQ_KERNELS(fake_quantize_backward, cuda_f32, kKernels);
