// dynamic_range_quantize on CUDA, from float32 to int4 and uint4.
#define PLANQ_ELEMENT Float32
#include "ops/affine/dynamic_range_quantize/cuda.cuh"

PLANQ_KERNELS(dynamic_range_quantize, cuda_f32_nibble, (kKernels<DType::Int4, DType::UInt4>));
