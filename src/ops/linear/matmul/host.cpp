// matmul on the host.
#include "ops/linear/matmul/desc.h"
#include "ops/linear/tables/float_kernels_host.h"

namespace planq::matmul {
namespace {

constexpr auto kKernels =
    joined(host::float_kernels<Layer, Accumulation::TensorSm90, DType::Float16, DType::BFloat16>(),
           host::float_kernels<Layer, Accumulation::Lanes, DType::Float16, DType::BFloat16>());

}  // namespace
}  // namespace planq::matmul

PLANQ_KERNELS(matmul, host, kKernels);
