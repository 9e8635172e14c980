// rms_norm on CUDA: see ops/norm/rows.cuh. The file that includes this names the type of the input:
// see cuda/element.cuh.
#pragma once

#include "ops/norm/rms_norm/desc.h"
#include "ops/norm/rows.cuh"

namespace planq::rms_norm {
namespace {

Status prepare(const Descriptor&, const Device&, State&) { return norm::preload_norms<false>(); }

Status bind(const Call& call, Bound& bound) {
  return norm::launch_norm<false>(norm_of(call), call.device, bound);
}

constexpr auto kFloating = norm::kernels_of_outputs([](auto output) -> Kernel {
  constexpr DType kOutputType = output.value;
  return {.op = "rms_norm",
          .body = "rows",
          .dtypes = kDTypes<cuda::kElement, kOutputType>,
          .revision = 1,
          .backend = Backend::Cuda,
          .arch = {80, kLastArch},
          .rank = 0,
          .guarantee = norm::kGuarantee,
          .rejects = norm::rejects<Fields, cuda::kElement, kOutputType>,
          .workspace = no_workspace,
          .prepare = prepare,
          .bind = bind};
});

constexpr auto kKernels =
    joined(kFloating, affine::quantized_parts<Fields, Backend::Cuda, cuda::kElement>("rms_norm"));

}  // namespace
}  // namespace planq::rms_norm
