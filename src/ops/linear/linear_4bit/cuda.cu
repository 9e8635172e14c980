// linear_4bit on CUDA: the SIMT kernels, for any gemm on any GPU, and the kernels of sm80 on its
// tensor cores.
#include "ops/linear/linear_4bit/desc.h"
#include "ops/linear/tables/float_kernels_cuda.h"

namespace planq::linear_4bit {
namespace {

constexpr auto kKernels = cuda::weight_only_kernels<Layer>();

}  // namespace
}  // namespace planq::linear_4bit

PLANQ_KERNELS(linear_4bit, cuda, kKernels);
