// fake_quantize_backward on CUDA, with elements of float64.
#define PLANQ_ELEMENT Float64
#include "ops/affine/fake_quantize_backward/cuda.cuh"

PLANQ_KERNELS(fake_quantize_backward, cuda_f64, kKernels);
