// linear_4bit on the host. Codes become numbers on the way, a slice of k at a time.
#include "ops/linear/linear_4bit/desc.h"
#include "ops/linear/tables/float_kernels_host.h"

namespace planq::linear_4bit {
namespace {

constexpr auto kKernels = host::weight_only_kernels<Layer>();

}  // namespace
}  // namespace planq::linear_4bit

PLANQ_KERNELS(linear_4bit, host, kKernels);
