// linear_mixed on the host. Weights are given back slice by slice on the way.
#include "ops/linear/float_kernels_host.h"
#include "ops/linear/linear_mixed/desc.h"

namespace planq::linear_mixed {
namespace {

struct Kernels {
  using Fields = linear_mixed::Fields;
  static constexpr std::string_view kName = "linear_mixed";

  static Status compute(const Call& call, const Stream& stream) {
    const linear::WeightCodes codes = codes_of(call);
    host::multiply_floats(product_of(call, codes), call.fields<Fields>().accumulation,
                          stream.threads);
    return Status::success();
  }
};

constexpr auto kKernels = joined(
    host::float_kernels<Kernels, Accumulation::TensorSm90, DType::Float16, DType::BFloat16>(),
    host::float_kernels<Kernels, Accumulation::Lanes, DType::Float16, DType::BFloat16,
                        DType::Float32>());

}  // namespace
}  // namespace planq::linear_mixed

PLANQ_KERNELS(linear_mixed, host, kKernels);
