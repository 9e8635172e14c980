// vectorwise_quantize on CUDA, with elements of float32.
#define PLANQ_ELEMENT Float32
#include "ops/outlier/vectorwise_quantize/cuda.cuh"

PLANQ_KERNELS(vectorwise_quantize, cuda_f32, kKernels);
