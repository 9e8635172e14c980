// linear_fp8 on the host.
#include "ops/linear/float_kernels_host.h"
#include "ops/linear/linear_fp8/desc.h"

namespace planq::linear_fp8 {
namespace {

struct Kernels {
  using Fields = linear_fp8::Fields;
  static constexpr std::string_view kName = "linear_fp8";

  static Status compute(const Call& call, const Stream& stream) {
    host::multiply_floats(product_of(call), call.fields<Fields>().accumulation, stream.threads);
    return Status::success();
  }
};

constexpr auto kKernels = host::float_kernels<Kernels, Accumulation::TensorSm90,
                                              DType::Float8E4M3FN, DType::Float8E5M2>();

}  // namespace
}  // namespace planq::linear_fp8

PLANQ_KERNELS(linear_fp8, host, kKernels);
