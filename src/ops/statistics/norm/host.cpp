// norm on the host: one kernel for each input type, all of them sums_host.h.
#include "ops/statistics/norm/desc.h"
#include "ops/statistics/sums_host.h"

namespace planq::norm {
namespace {

constexpr auto kKernels = sum_kernels<host::NumberKernels<Measuring>>();

}  // namespace
}  // namespace planq::norm

PLANQ_KERNELS(norm, host, kKernels);
