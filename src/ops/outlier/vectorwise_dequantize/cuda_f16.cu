// vectorwise_dequantize on CUDA, with elements of float16.
#define PLANQ_ELEMENT Float16
#include "ops/outlier/vectorwise_dequantize/cuda.cuh"

PLANQ_KERNELS(vectorwise_dequantize, cuda_f16, kKernels);
