// group_quantize on CUDA, with elements of float32.
#define PLANQ_ELEMENT Float32
#include "cuda/element.cuh"
#include "ops/group/group_quantize/cuda.cuh"

PLANQ_KERNELS(group_quantize, cuda_f32, kKernels);
