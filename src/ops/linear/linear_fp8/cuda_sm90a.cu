// linear_fp8 on CUDA, sm_90a: the tensor cores whose order of sums TENSOR_SM90 is, by warpgroup.
#include "core/rejects.h"
#include "ops/linear/float_guarantee.h"
#include "ops/linear/float_launch.cuh"
#include "ops/linear/linear_fp8/desc.h"

namespace planq::linear_fp8 {
namespace {

template <DType kIn>
Reason rejects(const Descriptor& descriptor, const Device&) {
  const Fields& f = descriptor.as<Fields>();
  const Reason reason = expect(ReasonKind::DType, "input_dtype", kIn, f.input_dtype);
  if (!reason.accepted()) return reason;
  if (f.input().terms() % 16 != 0)
    return Reason::refuse(ReasonKind::Shape, "reads rows of whole vectors of 16 codes");
  return Reason::accept();
}

std::size_t no_workspace(const Descriptor&, const Device&) { return 0; }
template <DType kIn>
Status prepare(const Descriptor& descriptor, const Device&, State&) {
  return linear::preload_float_wgmma(kIn, descriptor.as<Fields>().weight_dtype);
}

// Operands that it cannot read go to the kernel for every GPU, which has the same bits.
Status bind(const Call& call, Bound& bound) {
  return linear::launch_float_wgmma(product_of(call), call.device, bound);
}

template <DType kIn>
constexpr Kernel make_kernel() {
  return {.op = "linear_fp8",
          .method = "wgmma",
          .dtypes = kDTypes<kIn>,
          .revision = 1,
          .backend = Backend::Cuda,
          .arch = {90, 90},
          .rank = 50,
          .guarantee = linear::kFloatGuarantee<Accumulation::TensorSm90, kIn>,
          .rejects = rejects<kIn>,
          .workspace = no_workspace,
          .prepare = prepare<kIn>,
          .bind = bind};
}

constexpr Kernel kKernels[] = {make_kernel<DType::Float8E4M3FN>(),
                               make_kernel<DType::Float8E5M2>()};

}  // namespace
}  // namespace planq::linear_fp8

PLANQ_KERNELS(linear_fp8, cuda_sm90a, kKernels);
