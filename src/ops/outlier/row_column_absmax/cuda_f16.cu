// row_column_absmax on CUDA, with elements of float16.
#define PLANQ_ELEMENT Float16
#include "ops/outlier/row_column_absmax/cuda.cuh"

PLANQ_KERNELS(row_column_absmax, cuda_f16, kKernels);
