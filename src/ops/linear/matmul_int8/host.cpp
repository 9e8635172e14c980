// matmul_int8 on the host.
#include "ops/linear/matmul_int8/desc.h"
#include "ops/linear/tables/int_kernels_host.h"

namespace planq::matmul_int8 {
namespace {

constexpr auto kKernels = host::int_kernels<Layer>();

}  // namespace
}  // namespace planq::matmul_int8

PLANQ_KERNELS(matmul_int8, host, kKernels);
