// linear_w8a8 on CUDA, sm_90a: the kernels of wgmma.
#include "ops/linear/linear_w8a8/desc.h"
#include "ops/linear/tables/int_kernels_cuda.h"

namespace planq::linear_w8a8 {
namespace {

constexpr auto kKernels = cuda::int_wgmma_kernels<Layer>();

}  // namespace
}  // namespace planq::linear_w8a8

PLANQ_KERNELS(linear_w8a8, cuda_sm90a, kKernels);
