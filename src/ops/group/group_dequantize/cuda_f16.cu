// group_dequantize on CUDA, to elements of float16.
#define PLANQ_ELEMENT Float16
#include "cuda/element.cuh"
#include "ops/group/group_dequantize/cuda.cuh"

PLANQ_KERNELS(group_dequantize, cuda_f16, kKernels);
