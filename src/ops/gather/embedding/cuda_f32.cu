// embedding on CUDA, with outputs of float32.
#define PLANQ_ELEMENT Float32
#include "ops/gather/embedding/cuda.cuh"

PLANQ_KERNELS(embedding, cuda_f32, kKernels);
