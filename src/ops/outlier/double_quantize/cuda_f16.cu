// double_quantize on CUDA, with elements of float16.
#define PLANQ_ELEMENT Float16
#include "ops/outlier/double_quantize/cuda.cuh"

PLANQ_KERNELS(double_quantize, cuda_f16, kKernels);
