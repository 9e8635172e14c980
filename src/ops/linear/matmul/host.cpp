// matmul on the host.
#include "ops/linear/float_kernels_host.h"
#include "ops/linear/matmul/desc.h"

namespace planq::matmul {
namespace {

struct Kernels {
  using Fields = matmul::Fields;
  static constexpr std::string_view kName = "matmul";

  static Status compute(const Call& call, const Stream& stream) {
    host::multiply_floats(product_of(call), call.fields<Fields>().accumulation, stream.threads);
    return Status::success();
  }
};

constexpr auto kKernels = joined(
    host::float_kernels<Kernels, Accumulation::TensorSm90, DType::Float16, DType::BFloat16>(),
    host::float_kernels<Kernels, Accumulation::Lanes, DType::Float16, DType::BFloat16>());

}  // namespace
}  // namespace planq::matmul

PLANQ_KERNELS(matmul, host, kKernels);
