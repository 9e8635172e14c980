// linear_fp8 on the host.
#include "ops/linear/linear_fp8/desc.h"
#include "ops/linear/tables/float_kernels_host.h"

namespace planq::linear_fp8 {
namespace {

constexpr auto kKernels =
    host::float_kernels<Layer, Accumulation::TensorSm90, DType::Float8E4M3FN, DType::Float8E5M2>();

}  // namespace
}  // namespace planq::linear_fp8

PLANQ_KERNELS(linear_fp8, host, kKernels);
