// linear_fp8 on CUDA, sm_90a: the kernels of wgmma, in the order of TENSOR_SM90.
#include "ops/linear/linear_fp8/desc.h"
#include "ops/linear/tables/float_kernels_cuda.h"

namespace planq::linear_fp8 {
namespace {

constexpr auto kKernels = cuda::wgmma_kernels<Layer, DType::Float8E4M3FN, DType::Float8E5M2>();

}  // namespace
}  // namespace planq::linear_fp8

PLANQ_KERNELS(linear_fp8, cuda_sm90a, kKernels);
