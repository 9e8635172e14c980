// norm on CUDA: one kernel for each input type, all of them sums_cuda.h.
#include "ops/statistics/norm/desc.h"
#include "ops/statistics/sums_cuda.h"

namespace planq::norm {
namespace {

constexpr auto kKernels = sum_kernels<cuda::NumberKernels<Measuring>>();

}  // namespace
}  // namespace planq::norm

PLANQ_KERNELS(norm, cuda, kKernels);
