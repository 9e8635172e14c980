// vectorwise_quantize on CUDA, with elements of float64.
#define PLANQ_ELEMENT Float64
#include "ops/outlier/vectorwise_quantize/cuda.cuh"

PLANQ_KERNELS(vectorwise_quantize, cuda_f64, kKernels);
