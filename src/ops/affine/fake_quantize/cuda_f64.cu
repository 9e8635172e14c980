// fake_quantize on CUDA, with elements of float64.
#define PLANQ_ELEMENT Float64
#include "ops/affine/fake_quantize/cuda.cuh"

PLANQ_KERNELS(fake_quantize, cuda_f64, kKernels);
