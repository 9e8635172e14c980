// square_sum on the host: one kernel for each input type, all of them sums_host.h.
#include "ops/statistics/square_sum/desc.h"
#include "ops/statistics/sums_host.h"

namespace planq::square_sum {
namespace {

constexpr auto kKernels = sum_kernels<host::NumberKernels<Measuring>>();

}  // namespace
}  // namespace planq::square_sum

PLANQ_KERNELS(square_sum, host, kKernels);
