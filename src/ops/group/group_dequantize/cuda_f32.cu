// group_dequantize on CUDA, to elements of float32.
#define PLANQ_ELEMENT Float32
#include "cuda/element.cuh"
#include "ops/group/group_dequantize/cuda.cuh"

PLANQ_KERNELS(group_dequantize, cuda_f32, kKernels);
