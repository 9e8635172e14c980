// group_quantize on CUDA, with elements of float16.
#define PLANQ_ELEMENT Float16
#include "cuda/element.cuh"
#include "ops/group/group_quantize/cuda.cuh"

PLANQ_KERNELS(group_quantize, cuda_f16, kKernels);
