// linear_w8a8_dynamic on the host.
#include "ops/linear/linear_w8a8_dynamic/desc.h"

namespace planq::linear_w8a8_dynamic {
namespace {

constexpr Kernel kKernels[] = {make_kernel<Backend::Host, 0>()};

}  // namespace
}  // namespace planq::linear_w8a8_dynamic

PLANQ_KERNELS(linear_w8a8_dynamic, host, kKernels);
