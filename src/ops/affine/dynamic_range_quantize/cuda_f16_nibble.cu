// dynamic_range_quantize on CUDA, from float16 to int4 and uint4.
#define PLANQ_ELEMENT Float16
#include "ops/affine/dynamic_range_quantize/cuda.cuh"

PLANQ_KERNELS(dynamic_range_quantize, cuda_f16_nibble, (kKernels<DType::Int4, DType::UInt4>));
