// rotary_embedding on CUDA, of float32.
#define PLANQ_ELEMENT Float32
#include "ops/position/rotary_embedding/cuda.cuh"

PLANQ_KERNELS(rotary_embedding, cuda_f32, kKernels);
