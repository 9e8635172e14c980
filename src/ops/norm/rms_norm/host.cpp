// rms_norm on the host: see ops/norm/rows_host.h.

#include "host/bind.h"
#include "ops/norm/rms_norm/desc.h"
#include "ops/norm/rows_host.h"

namespace planq::rms_norm {
namespace {

template <DType kInputType>
Status compute(const Call& call, const Stream& stream) {
  host::normalize_rows(norm_of(call), kInputType, stream.threads);
  return Status::success();
}

template <DType kInputType>
constexpr auto kOfInput = norm::kernels_of_outputs([](auto output) -> Kernel {
  constexpr DType kOutputType = output.value;
  return {.op = "rms_norm",
          .body = "rows",
          .dtypes = kDTypes<kInputType, kOutputType>,
          .revision = 1,
          .backend = Backend::Host,
          .arch = {},
          .rank = 0,
          .guarantee = norm::kGuarantee,
          .rejects = norm::rejects<Fields, kInputType, kOutputType>,
          .workspace = no_workspace,
          .prepare = nothing_to_prepare,
          .bind = host::bind<compute<kInputType>>};
});

constexpr auto kKernels = joined(
    kOfInput<DType::Float16>, kOfInput<DType::BFloat16>, kOfInput<DType::Float32>,
    affine::quantized_parts<Fields, Backend::Host, DType::Float16, DType::BFloat16, DType::Float32>(
        "rms_norm"));

}  // namespace
}  // namespace planq::rms_norm

PLANQ_KERNELS(rms_norm, host, kKernels);
