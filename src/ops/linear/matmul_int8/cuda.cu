// matmul_int8 on CUDA: the kernels of sm80, for every GPU from sm_80 on.
#include "cuda/launch.cuh"
#include "ops/linear/matmul_int8/desc.h"
#include "ops/linear/sm80/launch.h"

namespace planq::matmul_int8 {
namespace {

Reason accept(const Descriptor&, const Device&) { return Reason::accept(); }
Status prepare(const Descriptor&, const Device&, State&) { return linear::preload_sm80(); }
Status bind(const Call& call, Bound& bound) {
  return linear::launch_sm80(gemm_of(call), call.device, bound);
}

Reason rejects_few_rows(const Descriptor& descriptor, const Device&) {
  const Fields& f = descriptor.as<Fields>();
  return linear::takes_few_rows(f.input(), f.weight());
}
// Operands that it cannot read go to the other kernel.
Status prepare_few_rows(const Descriptor&, const Device&, State&) {
  PLANQ_TRY(linear::preload_sm80());
  return linear::preload_few_rows();
}
Status bind_few_rows(const Call& call, Bound& bound) {
  return linear::launch_few_rows(gemm_of(call), call.device, bound);
}

constexpr Guarantee kGuarantee = {.determinism = Determinism::BitExact,
                                  .math = MathPrecision::Int32,
                                  .accumulator = DType::Int32,
                                  .rounding = Rounding::None,
                                  .max_ulp = 0,
                                  .error_bound = kNoErrorBound,
                                  .batch_invariant = true,
                                  .basis = "exact integer sums"};

constexpr Kernel kKernels[] = {
    {.op = "matmul_int8",
     .body = "mma",
     .revision = 1,
     .backend = Backend::Cuda,
     .arch = {80},
     .rank = 100,
     .guarantee = kGuarantee,
     .rejects = accept,
     .workspace = no_workspace,
     .prepare = prepare,
     .bind = bind},
    {.op = "matmul_int8",
     .body = "stream",
     .revision = 1,
     .backend = Backend::Cuda,
     .arch = {80},
     .rank = 60,
     .guarantee = kGuarantee,
     .rejects = rejects_few_rows,
     .workspace = no_workspace,
     .prepare = prepare_few_rows,
     .bind = bind_few_rows},
};

}  // namespace
}  // namespace planq::matmul_int8

PLANQ_KERNELS(matmul_int8, cuda, kKernels);
