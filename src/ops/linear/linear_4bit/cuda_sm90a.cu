// linear_4bit on CUDA, sm_90a: the tensor cores whose order of sums TENSOR_SM90 is, by warpgroup.
#include "core/rejects.h"
#include "ops/linear/float_guarantee.h"
#include "ops/linear/float_launch.cuh"
#include "ops/linear/linear_4bit/desc.h"

namespace planq::linear_4bit {
namespace {

template <DType kIn>
Reason rejects(const Descriptor& descriptor, const Device&) {
  const Fields& f = descriptor.as<Fields>();
  Reason reason = expect(ReasonKind::DType, "input_dtype", kIn, f.input_dtype);
  if (reason.accepted())
    reason = expect(ReasonKind::Feature, "accumulation", Accumulation::TensorSm90, f.accumulation);
  if (!reason.accepted()) return reason;
  if (f.input().terms() % 8 != 0)
    return Reason::refuse(ReasonKind::Shape, "reads rows of whole vectors of 8 numbers");
  return Reason::accept();
}

std::size_t workspace(const Descriptor& descriptor, const Device&) {
  const Shape& weight = descriptor.as<Fields>().weight_shape;
  return linear::coded_wgmma_workspace(weight[0], weight[1]);
}
template <DType kIn>
Status prepare(const Descriptor&, const Device&, State&) {
  return linear::preload_coded_wgmma(kIn);
}

Status bind(const Call& call, Bound& bound) {
  const linear::WeightCodes codes = codes_of(call);
  return linear::launch_coded_wgmma(product_of(call, codes), call, bound);
}

template <DType kIn>
constexpr Kernel make_kernel() {
  return {.op = "linear_4bit",
          .method = "wgmma",
          .dtypes = kDTypes<kIn>,
          .revision = 1,
          .backend = Backend::Cuda,
          .arch = {90, 90},
          .rank = 50,
          .guarantee = linear::kFloatGuarantee<Accumulation::TensorSm90, kIn>,
          .rejects = rejects<kIn>,
          .workspace = workspace,
          .prepare = prepare<kIn>,
          .bind = bind};
}

constexpr Kernel kKernels[] = {make_kernel<DType::Float16>(), make_kernel<DType::BFloat16>()};

}  // namespace
}  // namespace planq::linear_4bit

PLANQ_KERNELS(linear_4bit, cuda_sm90a, kKernels);
