// linear_fp8 on CUDA: the SIMT kernels, for any gemm on any GPU, and the kernels of sm80 on its
// tensor cores.
#include "ops/linear/linear_fp8/desc.h"
#include "ops/linear/tables/float_kernels_cuda.h"

namespace planq::linear_fp8 {
namespace {

constexpr auto kKernels = joined(
    cuda::float_kernels<Layer, Accumulation::TensorSm90, DType::Float8E4M3FN, DType::Float8E5M2>(),
    cuda::mma_kernels<Layer, DType::Float8E4M3FN, DType::Float8E5M2>());

}  // namespace
}  // namespace planq::linear_fp8

PLANQ_KERNELS(linear_fp8, cuda, kKernels);
