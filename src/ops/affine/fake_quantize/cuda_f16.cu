// fake_quantize on CUDA, with elements of float16.
#define PLANQ_ELEMENT Float16
#include "ops/affine/fake_quantize/cuda.cuh"

PLANQ_KERNELS(fake_quantize, cuda_f16, kKernels);
