// embedding on CUDA, with outputs of float16.
#define PLANQ_ELEMENT Float16
#include "ops/gather/embedding/cuda.cuh"

PLANQ_KERNELS(embedding, cuda_f16, kKernels);
