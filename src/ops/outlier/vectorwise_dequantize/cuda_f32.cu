// vectorwise_dequantize on CUDA, with elements of float32.
#define PLANQ_ELEMENT Float32
#include "ops/outlier/vectorwise_dequantize/cuda.cuh"

PLANQ_KERNELS(vectorwise_dequantize, cuda_f32, kKernels);
