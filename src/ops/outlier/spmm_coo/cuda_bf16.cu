// spmm_coo on CUDA, with a weight of bfloat16.
#define PLANQ_WEIGHT BFloat16
#include "ops/outlier/spmm_coo/cuda.cuh"

PLANQ_KERNELS(spmm_coo, cuda_bf16, kKernels);
