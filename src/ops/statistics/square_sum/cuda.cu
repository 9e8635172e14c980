// square_sum on CUDA: one kernel for each input type, all of them sums_cuda.h.
#include "ops/statistics/square_sum/desc.h"
#include "ops/statistics/sums_cuda.h"

namespace planq::square_sum {
namespace {

constexpr auto kKernels = sum_kernels<cuda::NumberKernels<Measuring>>();

}  // namespace
}  // namespace planq::square_sum

PLANQ_KERNELS(square_sum, cuda, kKernels);
