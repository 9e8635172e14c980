// optimizer_step on CUDA, with states as codes in blocks.
#define PLANQ_STATE_FORMAT Blockwise8
#include "ops/optimizer/optimizer_step/cuda.cuh"

PLANQ_KERNELS(optimizer_step, cuda_blockwise8, kKernels);
