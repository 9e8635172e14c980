// linear_llm_int8 on CUDA: the kernels of sm80, for every GPU from sm_80 on, behind the kernel that
// gathers what they read for outliers.
#include "ops/linear/linear_llm_int8/launch.h"
#include "ops/linear/sm80/launch.h"

namespace planq::linear_llm_int8 {
namespace {

constexpr auto kRejects = rejects<Accumulation::Sequential>;

Status prepare(const Descriptor&, const Device&, State&) {
  PLANQ_TRY(preload_gather());
  return preload_sm80();
}

Reason rejects_few_rows(const Descriptor& descriptor, const Device& device) {
  const Fields& f = descriptor.as<Fields>();
  const Reason reason = kRejects(descriptor, device);
  return reason.accepted() ? linear::takes_few_rows(f.input(), f.weight()) : reason;
}
// Operands that it cannot read go to the other kernel.
Status prepare_few_rows(const Descriptor& descriptor, const Device& device, State& state) {
  PLANQ_TRY(prepare(descriptor, device, state));
  return preload_few_rows();
}

constexpr Kernel kKernels[] = {
    {.op = "linear_llm_int8",
     .arithmetic = name_of(Accumulation::Sequential),
     .body = "mma",
     .revision = 1,
     .backend = Backend::Cuda,
     .arch = {80},
     .rank = 100,
     .guarantee = kGuarantee<Accumulation::Sequential>,
     .rejects = kRejects,
     .workspace = workspace,
     .prepare = prepare,
     .bind = bind<launch_sm80>},
    {.op = "linear_llm_int8",
     .arithmetic = name_of(Accumulation::Sequential),
     .body = "few_rows",
     .revision = 1,
     .backend = Backend::Cuda,
     .arch = {80},
     .rank = 60,
     .guarantee = kGuarantee<Accumulation::Sequential>,
     .rejects = rejects_few_rows,
     .workspace = workspace,
     .prepare = prepare_few_rows,
     .bind = bind<launch_few_rows>},
};

}  // namespace
}  // namespace planq::linear_llm_int8

PLANQ_KERNELS(linear_llm_int8, cuda, kKernels);
