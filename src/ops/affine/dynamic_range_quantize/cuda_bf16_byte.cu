// dynamic_range_quantize on CUDA, from bfloat16 to int8 and uint8.
#define PLANQ_ELEMENT BFloat16
#include "ops/affine/dynamic_range_quantize/cuda.cuh"

PLANQ_KERNELS(dynamic_range_quantize, cuda_bf16_byte, (kKernels<DType::Int8, DType::UInt8>));
