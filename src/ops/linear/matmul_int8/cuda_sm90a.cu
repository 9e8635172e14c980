// matmul_int8 on CUDA, sm_90a: the kernels of wgmma.
#include "ops/linear/matmul_int8/desc.h"
#include "ops/linear/sm90/launch.h"

namespace planq::matmul_int8 {
namespace {

Reason rejects(const Descriptor& descriptor, const Device&) {
  const Fields& f = descriptor.as<Fields>();
  return linear::rejects_wgmma(f.input(), f.weight(), f.output_dtype);
}

Status prepare(const Descriptor&, const Device&, State&) { return linear::preload_sm90(); }

Status bind(const Call& call, Bound& bound) {
  return linear::launch_sm90(gemm_of(call), call.device, bound);
}

constexpr Kernel kKernels[] = {
    {.op = "matmul_int8",
     .body = "wgmma",
     .revision = 1,
     .backend = Backend::Cuda,
     .arch = {90, 90},
     .rank = 50,
     .guarantee = {.determinism = Determinism::BitExact,
                   .math = MathPrecision::Int32,
                   .accumulator = DType::Int32,
                   .rounding = Rounding::None,
                   .max_ulp = 0,
                   .error_bound = kNoErrorBound,
                   .batch_invariant = true,
                   .basis = "exact integer sums"},
     .rejects = rejects,
     .workspace = no_workspace,
     .prepare = prepare,
     .bind = bind},
};

}  // namespace
}  // namespace planq::matmul_int8

PLANQ_KERNELS(matmul_int8, cuda_sm90a, kKernels);
