// linear_w8a8 on CUDA: the kernels of sm80, for every GPU from sm_80 on.
#include "ops/linear/linear_w8a8/desc.h"
#include "ops/linear/tables/int_kernels_cuda.h"

namespace planq::linear_w8a8 {
namespace {

constexpr auto kKernels = cuda::int_kernels<Layer>();

}  // namespace
}  // namespace planq::linear_w8a8

PLANQ_KERNELS(linear_w8a8, cuda, kKernels);
