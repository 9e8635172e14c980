// linear_mixed on CUDA: any product on any GPU, by the functions that the host has too, and on its
// tensor cores.
#include "ops/linear/linear_mixed/desc.h"
#include "ops/linear/tables/float_kernels_cuda.h"

namespace planq::linear_mixed {
namespace {

constexpr auto kKernels = cuda::weight_only_kernels<Layer>();

}  // namespace
}  // namespace planq::linear_mixed

PLANQ_KERNELS(linear_mixed, cuda, kKernels);
