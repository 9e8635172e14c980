// row_column_absmax on CUDA, with elements of float32.
#define PLANQ_ELEMENT Float32
#include "ops/outlier/row_column_absmax/cuda.cuh"

PLANQ_KERNELS(row_column_absmax, cuda_f32, kKernels);
