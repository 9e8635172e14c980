// matmul on CUDA, sm_90a: the kernels of wgmma, in the order of TENSOR_SM90.
#include "ops/linear/matmul/desc.h"
#include "ops/linear/tables/float_kernels_cuda.h"

namespace planq::matmul {
namespace {

constexpr auto kKernels = cuda::wgmma_kernels<Layer, DType::Float16, DType::BFloat16>();

}  // namespace
}  // namespace planq::matmul

PLANQ_KERNELS(matmul, cuda_sm90a, kKernels);
