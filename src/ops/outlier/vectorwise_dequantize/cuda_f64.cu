// vectorwise_dequantize on CUDA, with elements of float64.
#define PLANQ_ELEMENT Float64
#include "ops/outlier/vectorwise_dequantize/cuda.cuh"

PLANQ_KERNELS(vectorwise_dequantize, cuda_f64, kKernels);
