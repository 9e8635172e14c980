// linear_w8a8 on the host.
#include "host/bind.h"
#include "ops/linear/host/gemm.h"
#include "ops/linear/linear_w8a8/desc.h"

namespace planq::linear_w8a8 {
namespace {

Status compute(const Call& call, const Stream& stream) {
  host::multiply(gemm_of(call), stream.threads);
  return Status::success();
}

Reason accept(const Descriptor&, const Device&) { return Reason::accept(); }

constexpr Kernel kKernels[] = {
    {.op = "linear_w8a8",
     .body = "tiles",
     .revision = 1,
     .backend = Backend::Host,
     .arch = {},
     .rank = 0,
     .guarantee = {.determinism = Determinism::BitExact,
                   .math = MathPrecision::Int32,
                   .accumulator = DType::Int32,
                   .rounding = Rounding::NearestEven,
                   .max_ulp = 0,
                   .error_bound = kNoErrorBound,
                   .batch_invariant = true,
                   .basis = "exact integer sums; IEEE operations in a fixed order"},
     .rejects = accept,
     .workspace = no_workspace,
     .prepare = nothing_to_prepare,
     .bind = host::bind<compute>},
};

}  // namespace
}  // namespace planq::linear_w8a8

PLANQ_KERNELS(linear_w8a8, host, kKernels);
