// spmm_coo on CUDA, with a weight of int8.
#define PLANQ_WEIGHT Int8
#include "ops/outlier/spmm_coo/cuda.cuh"

PLANQ_KERNELS(spmm_coo, cuda_s8, kKernels);
