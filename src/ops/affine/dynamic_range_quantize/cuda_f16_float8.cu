// dynamic_range_quantize on CUDA, from float16 to float8.
#define PLANQ_ELEMENT Float16
#include "ops/affine/dynamic_range_quantize/cuda.cuh"

PLANQ_KERNELS(dynamic_range_quantize, cuda_f16_float8,
              (kKernels<DType::Float8E4M3FN, DType::Float8E5M2>));
