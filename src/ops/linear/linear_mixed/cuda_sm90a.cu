// linear_mixed on CUDA, sm_90a: the kernels of wgmma, in the order of TENSOR_SM90.
#include "ops/linear/linear_mixed/desc.h"
#include "ops/linear/tables/float_kernels_cuda.h"

namespace planq::linear_mixed {
namespace {

constexpr auto kKernels = cuda::wgmma_kernels<Layer, DType::Float16, DType::BFloat16>();

}  // namespace
}  // namespace planq::linear_mixed

PLANQ_KERNELS(linear_mixed, cuda_sm90a, kKernels);
