// linear_mixed on the host. Weights are given back slice by slice on the way.
#include "ops/linear/float_kernels_host.h"
#include "ops/linear/linear_mixed/desc.h"

namespace planq::linear_mixed {
namespace {

struct Kernels {
  using Fields = linear_mixed::Fields;
  static constexpr std::string_view kName = "linear_mixed";

  static Status compute(const Call& call, const Stream& stream) {
    const Fields& f = call.fields<Fields>();
    const Operands& operands = call.operands;
    const bool channels = f.weight_scope.kind == ScopeKind::Channel;
    const linear::WeightCodes codes = linear::integer_codes(
        f, operands[kWeight], operands[kWeightScale], operands[kWeightZeroPoint]);
    const linear::Product product = linear::make_product(
        f.input(), f.weight(),
        {.input = &operands[kInput],
         .weight = &operands[kWeight],
         .output = &operands[kOutput],
         .weight_scale = channels ? &operands[kWeightScale] : nullptr,
         .bias = f.bias_dtype == DType::Unset ? nullptr : &operands[kBias],
         .residual = f.residual_dtype == DType::Unset ? nullptr : &operands[kResidual]},
        &codes);
    host::multiply_floats(product, f.accumulation, stream.threads);
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
