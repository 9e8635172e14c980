// matmul_int8 on CUDA, sm_90a: the kernels of wgmma.
#include "ops/linear/matmul_int8/desc.h"
#include "ops/linear/tables/int_kernels_cuda.h"

namespace planq::matmul_int8 {
namespace {

constexpr auto kKernels = cuda::int_wgmma_kernels<Layer>();

}  // namespace
}  // namespace planq::matmul_int8

PLANQ_KERNELS(matmul_int8, cuda_sm90a, kKernels);
