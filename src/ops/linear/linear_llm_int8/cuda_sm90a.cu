// linear_llm_int8 on CUDA, sm_90a: the tensor cores by warpgroup.
#include "ops/linear/linear_llm_int8/launch.h"
#include "ops/linear/mma_launch.cuh"
#include "ops/linear/wgmma_launch.cuh"

namespace planq::linear_llm_int8 {
namespace {

Reason rejects_wgmma(const Descriptor& descriptor, const Device& device) {
  const Fields& f = descriptor.as<Fields>();
  const Reason reason = rejects<Accumulation::Sequential>(descriptor, device);
  return reason.accepted() ? linear::rejects_wgmma(f.input(), f.weight(), f.output_dtype) : reason;
}

Status prepare(const Descriptor&, const Device&, State&) {
  PLANQ_TRY(preload_list());
  return linear::preload_listed_wgmma();
}

// What it cannot read goes to the kernel for every GPU, which has the same bits.
Status bind_wgmma(const Call& call, Bound& bound) {
  const linear::Product product = product_with(call, call.operands[kOutlier]);
  bool launched = false;
  PLANQ_TRY(linear::launch_listed_wgmma(product, call.device, bound, launched));
  return launched ? Status::success() : bind<linear::launch_mma>(call, bound);
}

constexpr Kernel kKernels[] = {{.op = "linear_llm_int8",
                                .method = "wgmma",
                                .revision = 1,
                                .backend = Backend::Cuda,
                                .arch = {90, 90},
                                .rank = 50,
                                .guarantee = kGuarantee<Accumulation::Sequential>,
                                .rejects = rejects_wgmma,
                                .workspace = workspace,
                                .prepare = prepare,
                                .bind = bind_wgmma}};

}  // namespace
}  // namespace planq::linear_llm_int8

PLANQ_KERNELS(linear_llm_int8, cuda_sm90a, kKernels);
