// matmul_int8 on CUDA: the kernels of sm80, for every GPU from sm_80 on.
#include "ops/linear/matmul_int8/desc.h"
#include "ops/linear/tables/int_kernels_cuda.h"

namespace planq::matmul_int8 {
namespace {

constexpr auto kKernels = cuda::int_kernels<Layer>();

}  // namespace
}  // namespace planq::matmul_int8

PLANQ_KERNELS(matmul_int8, cuda, kKernels);
