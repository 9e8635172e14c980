// linear_w8a8 on the host.
#include "ops/linear/linear_w8a8/desc.h"
#include "ops/linear/tables/int_kernels_host.h"

namespace planq::linear_w8a8 {
namespace {

constexpr auto kKernels = host::int_kernels<Layer>();

}  // namespace
}  // namespace planq::linear_w8a8

PLANQ_KERNELS(linear_w8a8, host, kKernels);
