// spmm_coo on CUDA, with a weight of float16.
#define PLANQ_WEIGHT Float16
#include "ops/outlier/spmm_coo/cuda.cuh"

PLANQ_KERNELS(spmm_coo, cuda_f16, kKernels);
