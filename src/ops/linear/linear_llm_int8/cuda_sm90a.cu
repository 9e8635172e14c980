// linear_llm_int8 on CUDA, sm_90a: the kernels of wgmma.
#include "ops/linear/linear_llm_int8/launch.h"
#include "ops/linear/sm80/launch.h"
#include "ops/linear/sm90/launch.h"

namespace planq::linear_llm_int8 {
namespace {

template <Accumulation kAccumulation>
Reason rejects_wgmma(const Descriptor& descriptor, const Device& device) {
  const Fields& f = descriptor.as<Fields>();
  const Reason reason = rejects<kAccumulation>(descriptor, device);
  return reason.accepted() ? linear::rejects_wgmma(f.input(), f.weight(), f.output_dtype) : reason;
}

Status prepare(const Descriptor&, const Device&, State&) {
  PLANQ_TRY(preload_gather());
  PLANQ_TRY(preload_sm80());
  return preload_sm90(Accumulation::Sequential);
}
Status prepare_chain(const Descriptor&, const Device&, State&) {
  PLANQ_TRY(preload_chain());
  return preload_sm90(Accumulation::TensorSm90);
}

// Operands that it cannot read go to the kernel for every GPU, which has the same bits.
template <Accumulation kAccumulation, Status (*kOtherwise)(const Call&, Bound&)>
Status bind_wgmma(const Call& call, Bound& bound) {
  const linear::Gemm gemm = gemm_with(call, call.operands[kOutlier]);
  bool launched = false;
  PLANQ_TRY(launch_sm90(call, gemm, kAccumulation, bound, launched));
  if (launched) return Status::success();
  bound.name_body(kAccumulation == Accumulation::Sequential ? "mma" : "outputs");
  return kOtherwise(call, bound);
}

constexpr Kernel kKernels[] = {
    {.op = "linear_llm_int8",
     .arithmetic = name_of(Accumulation::Sequential),
     .body = "wgmma",
     .revision = 1,
     .backend = Backend::Cuda,
     .arch = {90, 90},
     .rank = 50,
     .guarantee = kGuarantee<Accumulation::Sequential>,
     .rejects = rejects_wgmma<Accumulation::Sequential>,
     .workspace = workspace,
     .prepare = prepare,
     .bind = bind_wgmma<Accumulation::Sequential, bind<launch_sm80>>},
    {.op = "linear_llm_int8",
     .arithmetic = name_of(Accumulation::TensorSm90),
     .body = "wgmma",
     .revision = 1,
     .backend = Backend::Cuda,
     .arch = {90, 90},
     .rank = 50,
     .guarantee = kGuarantee<Accumulation::TensorSm90>,
     .rejects = rejects_wgmma<Accumulation::TensorSm90>,
     .workspace = chain_workspace,
     .prepare = prepare_chain,
     .bind = bind_wgmma<Accumulation::TensorSm90, bind_chain>},
};

}  // namespace
}  // namespace planq::linear_llm_int8

PLANQ_KERNELS(linear_llm_int8, cuda_sm90a, kKernels);
