// vectorwise_quantize on CUDA, with elements of float16.
#define PLANQ_ELEMENT Float16
#include "ops/outlier/vectorwise_quantize/cuda.cuh"

PLANQ_KERNELS(vectorwise_quantize, cuda_f16, kKernels);
