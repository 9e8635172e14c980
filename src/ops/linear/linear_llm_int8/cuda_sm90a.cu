// linear_llm_int8 on CUDA, sm_90a: the kernels of wgmma.
#include "ops/linear/linear_llm_int8/launch.h"
#include "ops/linear/sm80/launch.h"
#include "ops/linear/sm90/launch.h"

namespace planq::linear_llm_int8 {
namespace {

using linear::sm90::Body;

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
template <Accumulation kAccumulation, Body kBody>
Status bind_wgmma(const Call& call, Bound& bound) {
  constexpr bool kSequential = kAccumulation == Accumulation::Sequential;
  const linear::Gemm gemm = gemm_with(call, call.operands[kOutlier]);
  bool launched = false;
  PLANQ_TRY(launch_sm90(call, gemm, kAccumulation, kBody, bound, launched));
  if (launched) return Status::success();
  bound.name_body(kSequential ? "mma" : "outputs");
  return kSequential ? bind<launch_sm80>(call, bound) : bind_chain(call, bound);
}

template <Accumulation kAccumulation, Body kBody>
constexpr Kernel wgmma_kernel() {
  constexpr bool kSequential = kAccumulation == Accumulation::Sequential;
  return {.op = "linear_llm_int8",
          .arithmetic = name_of(kAccumulation),
          .body = name_of(kBody),
          .revision = 1,
          .backend = Backend::Cuda,
          .arch = {90, 90},
          .rank = rank_of(kBody),
          .guarantee = kGuarantee<kAccumulation>,
          .rejects = rejects_wgmma<kAccumulation>,
          .workspace = kSequential ? workspace : chain_workspace,
          .prepare = kSequential ? prepare : prepare_chain,
          .bind = bind_wgmma<kAccumulation, kBody>};
}

constexpr Kernel kKernels[] = {
    wgmma_kernel<Accumulation::Sequential, Body::Fastest>(),
    wgmma_kernel<Accumulation::Sequential, Body::Tiles>(),
    wgmma_kernel<Accumulation::Sequential, Body::FewRows>(),
    wgmma_kernel<Accumulation::TensorSm90, Body::Fastest>(),
    wgmma_kernel<Accumulation::TensorSm90, Body::Tiles>(),
    wgmma_kernel<Accumulation::TensorSm90, Body::FewRows>(),
};

}  // namespace
}  // namespace planq::linear_llm_int8

PLANQ_KERNELS(linear_llm_int8, cuda_sm90a, kKernels);
