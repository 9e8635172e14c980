// matmul on CUDA: the SIMT kernels, for any gemm on any GPU, and the kernels of sm80 on its tensor
// cores.
#include "ops/linear/matmul/desc.h"
#include "ops/linear/tables/float_kernels_cuda.h"

namespace planq::matmul {
namespace {

constexpr auto kKernels =
    joined(cuda::float_kernels<Layer, Accumulation::TensorSm90, DType::Float16, DType::BFloat16>(),
           cuda::float_kernels<Layer, Accumulation::Lanes, DType::Float16, DType::BFloat16>(),
           cuda::mma_sm90_kernels<Layer, DType::Float16, DType::BFloat16>(),
           cuda::mma_kernels<Layer, DType::Float16, DType::BFloat16>());

}  // namespace
}  // namespace planq::matmul

PLANQ_KERNELS(matmul, cuda, kKernels);
