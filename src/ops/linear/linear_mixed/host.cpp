// linear_mixed on the host. Codes become numbers on the way, a slice of k at a time.
#include "ops/linear/linear_mixed/desc.h"
#include "ops/linear/tables/float_kernels_host.h"

namespace planq::linear_mixed {
namespace {

constexpr auto kKernels = host::weight_only_kernels<Layer>();

}  // namespace
}  // namespace planq::linear_mixed

PLANQ_KERNELS(linear_mixed, host, kKernels);
