// dynamic_range_quantize on CUDA, from bfloat16 to int4 and uint4.
#define PLANQ_ELEMENT BFloat16
#include "ops/affine/dynamic_range_quantize/cuda.cuh"

PLANQ_KERNELS(dynamic_range_quantize, cuda_bf16_nibble, (kKernels<DType::Int4, DType::UInt4>));
