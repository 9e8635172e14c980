// row_column_absmax on CUDA, with elements of bfloat16.
#define PLANQ_ELEMENT BFloat16
#include "ops/outlier/row_column_absmax/cuda.cuh"

PLANQ_KERNELS(row_column_absmax, cuda_bf16, kKernels);
