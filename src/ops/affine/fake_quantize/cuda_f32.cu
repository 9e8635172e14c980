// fake_quantize on CUDA, with elements of float32.
#define PLANQ_ELEMENT Float32
#include "ops/affine/fake_quantize/cuda.cuh"

PLANQ_KERNELS(fake_quantize, cuda_f32, kKernels);
