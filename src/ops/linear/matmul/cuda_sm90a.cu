// matmul on CUDA, sm_90a: the tensor cores whose order of sums TENSOR_SM90 is, by warpgroup.
#include "core/rejects.h"
#include "ops/linear/float_guarantee.h"
#include "ops/linear/float_launch.cuh"
#include "ops/linear/matmul/desc.h"

namespace planq::matmul {
namespace {

template <DType kIn>
Reason rejects(const Descriptor& descriptor, const Device&) {
  const Fields& f = descriptor.as<Fields>();
  Reason reason = expect(ReasonKind::DType, "input_dtype", kIn, f.input_dtype);
  if (reason.accepted())
    reason = expect(ReasonKind::Feature, "accumulation", Accumulation::TensorSm90, f.accumulation);
  if (!reason.accepted()) return reason;
  if (f.transpose_input || f.transpose_weight)
    return Reason::refuse(ReasonKind::Feature, "reads both sides along k");
  if (f.input().terms() % 8 != 0)
    return Reason::refuse(ReasonKind::Shape, "reads rows of whole vectors of 8 numbers");
  return Reason::accept();
}

std::size_t no_workspace(const Descriptor&, const Device&) { return 0; }
template <DType kIn>
Status prepare(const Descriptor&, const Device&, State&) {
  return linear::preload_float_wgmma(kIn, kIn);
}

// Operands that it cannot read go to the kernels for every GPU, which have the same bits.
Status bind(const Call& call, Bound& bound) {
  return linear::launch_float_wgmma(product_of(call), call.device, bound);
}

template <DType kIn>
constexpr Kernel make_kernel() {
  return {.op = "matmul",
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

constexpr Kernel kKernels[] = {make_kernel<DType::Float16>(), make_kernel<DType::BFloat16>()};

}  // namespace
}  // namespace planq::matmul

PLANQ_KERNELS(matmul, cuda_sm90a, kKernels);
